/* Separate processes that run in the memory of the first, each with its own thread area: they are not threads of it,
 * and execute the same functions all the time. With the argument `siblings` they are children of the first one's parent,
 * with `orphans` of processes that have ended. */
#define _GNU_SOURCE
#include "hard.h"
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 4
#define STACK (256 << 10)
#define AREA 4096

static volatile int stop;
static volatile int ended[CHILDREN];

KEPT static long hot(long n)
{
	EFFECT();
	if (n > 5)
		return n + 3;
	return n * 2;
}

KEPT static long hotter(long a, long b)
{
	long sum = 0;
	for (long i = 0; i < 10; i++)
		sum += hot(a + i) * b;
	return sum;
}

/* Calls no function of libc. */
KEPT static int child(void *number)
{
	long first = hotter((long)number, 3);
	while (!stop)
		if (hotter((long)number, 3) != first)
			return 9;
	ended[(long)number] = 1;
	return 7;
}

static pid_t make(int (*of)(void *), char *stack, int flags, long number)
{
	static char areas[2 * CHILDREN][AREA] __attribute__((aligned(64)));
	static int made;
	char *area = areas[made++] + AREA / 2;
	*(char **)area = area;
	flags |= CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_SETTLS | SIGCHLD;
	return clone(of, stack, flags, (void *)number, NULL, area, NULL);
}

static char *stacks;

static int parent_that_ends(void *number)
{
	return make(child, stacks + ((long)number + 1) * STACK, 0, (long)number) < 0;
}

int main(int count, char **words)
{
	const char *way = count > 1 ? words[1] : "";
	int orphans = !strcmp(way, "orphans"), siblings = !strcmp(way, "siblings");
	stacks = mmap(NULL, (CHILDREN + 1) * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(stacks != MAP_FAILED);
	pid_t children[CHILDREN];
	for (long i = 0; i < CHILDREN; i++) {
		int status;
		char *stack = stacks + (orphans ? CHILDREN + 1 : i + 1) * STACK;
		children[i] = make(orphans ? parent_that_ends : child, stack, siblings ? CLONE_PARENT : 0, i);
		CHECK(children[i] > 0);
		if (orphans)
			CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
	}
	long last = 0;
	for (int i = 0; i < 1500; i++) {
		last = hotter(i, 2);
		usleep(1000);
	}
	stop = 1;
	for (int i = 0; i < CHILDREN; i++) {
		int status;
		for (int waited = 0; !ended[i] && waited < 10000; waited++)
			usleep(1000);
		CHECK(ended[i]);
		if (orphans || siblings)
			continue;
		CHECK(waitpid(children[i], &status, 0) == children[i]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
	printf("all ended after %ld\n", last);
	return 0;
}
