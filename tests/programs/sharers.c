/* Separate processes that run in the memory of the first, each with its own thread area: they are not threads of it,
 * and execute the same functions all the time. */
#define _GNU_SOURCE
#include "hard.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 4
#define STACK (256 << 10)
#define AREA 4096

static volatile int stop;

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
	return 7;
}

int main(void)
{
	static char areas[CHILDREN][AREA] __attribute__((aligned(64)));
	char *stacks = mmap(NULL, CHILDREN * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(stacks != MAP_FAILED);
	pid_t children[CHILDREN];
	for (long i = 0; i < CHILDREN; i++) {
		char *area = areas[i] + AREA / 2;
		*(char **)area = area;
		int flags = CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_SETTLS | SIGCHLD;
		children[i] = clone(child, stacks + (i + 1) * STACK, flags, (void *)i, NULL, area, NULL);
		CHECK(children[i] > 0);
	}
	long last = 0;
	for (int i = 0; i < 1500; i++) {
		last = hotter(i, 2);
		usleep(1000);
	}
	stop = 1;
	for (int i = 0; i < CHILDREN; i++) {
		int status;
		CHECK(waitpid(children[i], &status, 0) == children[i]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
	printf("all ended after %ld\n", last);
	return 0;
}
