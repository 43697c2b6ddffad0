/* Works, says so, and waits for a line before it goes on: for tests that kill the program or its tracer in between.
 * With "busy" as an argument, a second thread works while it waits. */
#include "hard.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static volatile int stop;
static volatile long background;

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

KEPT static long descend(long left) { return left ? RETURNED(descend(left - 1)) + leaf(0) : 0; }

KEPT static void *busy(void *unused)
{
	do {
		CHECK(descend(50) == 50);
		background++;
	} while (!stop);
	return unused;
}

static int phase;

/* Waits in the middle of traced frames. A reader of the line knows that all of them have begun. */
KEPT static long waits(long left)
{
	char line[16];
	if (left)
		return RETURNED(waits(left - 1)) + 1;
	printf("phase %d\n", phase);
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		strcpy(line, "end\n");
	return strcmp(line, "on\n") == 0;
}

int main(int count, char **words)
{
	pthread_t thread;
	int with_thread = count > 1 && strcmp(words[1], "busy") == 0;
	if (with_thread)
		CHECK(pthread_create(&thread, NULL, busy, NULL) == 0);
	printf("process %d\n", getpid());
	do {
		for (int i = 0; i < 100; i++)
			CHECK(descend(10) == 10);
	} while (waits(20) == 21 && ++phase);
	stop = 1;
	if (with_thread) {
		CHECK(pthread_join(thread, NULL) == 0);
		CHECK(background > 0);
	}
	puts("end");
	return 5;
}
