/* A process that executes its own program as often as its first argument states, from its only thread or from another
 * than the first: a tracer meets it between two programs. The programs live from 0 to 49 ms. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

KEPT static long work(long n)
{
	EFFECT();
	return n + 1;
}

static long now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

struct next {
	char **words;
	long left;
};

KEPT static void *execute(void *of)
{
	struct next *next = of;
	char left[24];
	snprintf(left, sizeof left, "%ld", next->left - 1);
	execl("/proc/self/exe", "successions", left, next->words[2], NULL);
	CHECK(!"execl came back");
	return NULL;
}

int main(int count, char **words)
{
	CHECK(count == 3);
	struct next next = { words, atol(words[1]) };
	for (long until = now() + next.left * 37 % 50 * 1000000, n = 0; now() < until; n++)
		CHECK(work(n) == n + 1);
	if (next.left == 0) {
		puts("the last one");
		return 7;
	}
	pthread_t thread;
	if (strcmp(words[2], "thread") != 0)
		execute(&next);
	CHECK(pthread_create(&thread, NULL, execute, &next) == 0);
	pthread_join(thread, NULL);
	return 1;
}
