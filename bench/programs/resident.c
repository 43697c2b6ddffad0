/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * resident WATCHERS WORKERS: a process that runs until its input ends. WORKERS threads call `work` for ever; each of
 * WATCHERS sleeps for a moment again and again, and keeps the longest time between two looks at the clock. Each line of
 * input is answered by a line:
 *   gap     that longest time of any watcher, in nanoseconds, since this was asked last
 *   call    nanoseconds for a call of `empty`: the least over some slices of many
 *   other   the same for a call of `other`, which does as much
 *   work    nanoseconds for `work`: the least over some
 */
#include "measure.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the program that this is linked with. Each thread makes its own. */
void *start_work(void);
void work(void *);

#define SLICES 50
#define CALLS 20000
#define WORKS 200
/* A watcher's sleep: all of them together take a small part of one processor. */
#define SLEEP_EACH 20000

static long watchers;
static double longest;

__attribute__((noipa)) void empty(void)
{
	__asm__ volatile("");
}

__attribute__((noipa)) void other(void)
{
	__asm__ volatile("");
}

static void keep(double gap)
{
	double before;
	__atomic_load(&longest, &before, __ATOMIC_RELAXED);
	while (gap > before && !__atomic_compare_exchange(&longest, &before, &gap, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static void *watch(void *unused)
{
	struct timespec rest = { .tv_nsec = watchers * SLEEP_EACH };
	double last = nanoseconds();
	for (;;) {
		double now = nanoseconds();
		keep(now - last);
		last = now;
		nanosleep(&rest, NULL);
	}
	return unused;
}

static void *toil(void *unused)
{
	void *own = start_work();
	for (;;)
		work(own);
	return unused;
}

static double gap(void)
{
	double none = 0, found;
	__atomic_exchange(&longest, &none, &found, __ATOMIC_RELAXED);
	return found;
}

static double call(void (*function)(void))
{
	double least = 1e18;
	for (int slice = 0; slice < SLICES; slice++) {
		double start = nanoseconds();
		for (int i = 0; i < CALLS; i++)
			function();
		double time = (nanoseconds() - start) / CALLS;
		least = time < least ? time : least;
	}
	return least;
}

static double one_work(void *own)
{
	double least = 1e18;
	for (int i = 0; i < WORKS; i++) {
		double start = nanoseconds();
		work(own);
		double time = nanoseconds() - start;
		least = time < least ? time : least;
	}
	return least;
}

static void begin(void *(*run)(void *))
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, run, NULL))
		exit(1);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	watchers = atol(argv[1]);
	for (long i = 0; i < watchers; i++)
		begin(watch);
	for (long i = atol(argv[2]); i > 0; i--)
		begin(toil);
	void *own = start_work();
	char line[16];
	while (fgets(line, sizeof line, stdin)) {
		double answer = !strcmp(line, "gap\n")	? gap()
				: !strcmp(line, "call\n")	? call(empty)
				: !strcmp(line, "other\n") ? call(other)
								: one_work(own);
		printf("%f\n", answer);
		fflush(stdout);
	}
	return 0;
}
