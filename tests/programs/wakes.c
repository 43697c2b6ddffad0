/* One thread wakes another, as often as the argument states. It does so only when the other sleeps in read(), so each
 * call of say() wakes it once, and each call of hear() leaves the processor once. Both have one processor, which is not
 * idle when it goes from one to the other: some kernels do not report what idle tasks do. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int line[2];
static int rounds;
static pid_t sleeper;
static int hearing;

__attribute__((noinline)) static void say(void)
{
	if (write(line[1], "", 1) != 1)
		abort();
}

__attribute__((noinline)) static void hear(void)
{
	char byte;
	if (read(line[0], &byte, 1) != 1)
		abort();
}

static void *listen(void *unused)
{
	__atomic_store_n(&sleeper, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	for (int round = 0; round < rounds; round++) {
		__atomic_store_n(&hearing, round + 1, __ATOMIC_RELEASE);
		hear();
	}
	return unused;
}

/* Finds the line that begins with `begin` in a file of the other thread in /proc; its number goes into `rest`. */
static int says(const char *file, const char *begin, long *rest)
{
	char path[64], text[256] = "";
	int found = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/%s", sleeper, file);
	FILE *opened = fopen(path, "r");
	if (!opened)
		abort();
	while (!found && fgets(text, sizeof text, opened))
		found = strncmp(text, begin, strlen(begin)) == 0;
	fclose(opened);
	*rest = strtol(text + strlen(begin), NULL, 0);
	return found;
}

/* Whether the other thread is in the system call read and has left the processor there, which it had done `before`
 * times. The system call alone does not show this: the thread may find the byte before it leaves. */
static int sleeps(long *before)
{
	long left, unused;
	if (!says("status", "voluntary_ctxt_switches:", &left) || left <= *before || !says("syscall", "0 ", &unused))
		return 0;
	*before = left;
	return 1;
}

int main(int count, char **words)
{
	pthread_t other;
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	rounds = count > 1 ? atoi(words[1]) : 1;
	if (sched_setaffinity(0, sizeof one, &one) || pipe(line) || pthread_create(&other, NULL, listen, NULL))
		return 1;
	long before = 0;
	for (int round = 0; round < rounds; round++) {
		while (__atomic_load_n(&hearing, __ATOMIC_ACQUIRE) <= round || !sleeps(&before))
			usleep(50);
		say();
	}
	pthread_join(other, NULL);
	printf("%d\n", rounds);
	return 0;
}
