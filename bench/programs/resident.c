/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * resident WATCHERS WORKERS: a process that runs until its input ends. WORKERS threads call `work` for ever. Each of
 * WATCHERS threads sleeps for a moment again and again, and keeps the longest time between two reads of the clock. The
 * answer to each line of input is a line:
 *   gap            the longest time of any watcher, in nanoseconds, since the last such line
 *   call [CALLS]   nanoseconds for a call of `empty`: the least over some slices of CALLS calls
 *   other [CALLS]  the same for a call of `other`, which does the same
 *   fib LEVEL      nanoseconds for each call of `fib` that fib(LEVEL) makes
 *   work [WORKS]   nanoseconds for `work`: the least over WORKS calls
 *   patch, unpatch nanoseconds to switch all functions on or off, if LLVM XRay is in the program
 */
#include "measure.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The work, which another file defines. Each thread makes its own. */
void *start_work(void);
void work(void *);

#define SLICES 50
#define CALLS 20000
#define WORKS 200
/* A watcher's sleep: all of them together take a small part of one processor. */
#define SLEEP_EACH 20000

static long watchers;
static double longest;

/* The compiler keeps calls of such a function as they are. clang's attribute does less, but enough for a function with an
 * asm statement. */
#ifdef __clang__
#define ALONE __attribute__((noinline))
#else
#define ALONE __attribute__((noipa))
#endif

ALONE void empty(void)
{
	__asm__ volatile("");
}

ALONE void other(void)
{
	__asm__ volatile("");
}

/* Neither call is a sibling call: both return here. */
ALONE long fib(long n)
{
	if (n < 2)
		return n;
	long one = fib(n - 1);
	__asm__ volatile("" : "+r"(one));
	long other = fib(n - 2);
	__asm__ volatile("" : "+r"(other));
	return one + other;
}

static double fib_call(long level)
{
	double start = nanoseconds();
	fib(level);
	double time = nanoseconds() - start;
	long calls = 1, before = 1;
	for (long i = 1; i < level; i++) {
		long next = calls + before + 1;
		before = calls;
		calls = next;
	}
	return time / calls;
}

int __xray_patch(void) __attribute__((weak));
int __xray_unpatch(void) __attribute__((weak));

static double switched(int (*patch)(void))
{
	double start = nanoseconds();
	if (!patch || patch() != 1)
		return -1;
	return nanoseconds() - start;
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

static double call(void (*function)(void), long calls)
{
	double least = 1e18;
	for (int slice = 0; slice < SLICES; slice++) {
		double start = nanoseconds();
		for (long i = 0; i < calls; i++)
			function();
		double time = (nanoseconds() - start) / calls;
		least = time < least ? time : least;
	}
	return least;
}

static double one_work(void *own, long works)
{
	double least = 1e18;
	for (long i = 0; i < works; i++) {
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
	char line[32], word[16];
	while (fgets(line, sizeof line, stdin)) {
		long count = 0;
		if (sscanf(line, "%15s %ld", word, &count) < 1)
			continue;
		long calls = count ? count : CALLS;
		double answer = !strcmp(word, "gap")	   ? gap()
				: !strcmp(word, "call")	   ? call(empty, calls)
				: !strcmp(word, "other")   ? call(other, calls)
				: !strcmp(word, "fib")	   ? fib_call(count)
				: !strcmp(word, "patch")   ? switched(__xray_patch)
				: !strcmp(word, "unpatch") ? switched(__xray_unpatch)
							   : one_work(own, count ? count : WORKS);
		printf("%f\n", answer);
		fflush(stdout);
	}
	return 0;
}
