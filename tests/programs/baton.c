/* Two threads that pass a baton to each other: baton PASSES. They pass less often if other programs run. */
#include "hard.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>

#define SECONDS 3

static long passes;
static long turn;       /* passes so far; -1: no more */

KEPT static void first_has_it(void) { EFFECT(); }
KEPT static void second_has_it(void) { EFFECT(); }

/* Waits for a turn. Returns whether it comes. */
static int wait_for(long whose)
{
	for (long spins = 1;; spins++) {
		long now = __atomic_load_n(&turn, __ATOMIC_ACQUIRE);
		if (now == whose || now < 0)
			return now == whose;
		if (spins % 1000 == 0)
			sched_yield();
	}
}

static void *second(void *unused)
{
	for (long i = 0; wait_for(2 * i + 1); i++) {
		second_has_it();
		__atomic_store_n(&turn, 2 * i + 2, __ATOMIC_RELEASE);
	}
	return unused;
}

int main(int count, char **arguments)
{
	pthread_t thread;
	CHECK(count == 2);
	passes = atol(arguments[1]);
	CHECK(pthread_create(&thread, NULL, second, NULL) == 0);
	long i = 0;
	time_t end = time(NULL) + SECONDS;
	for (; i < passes && time(NULL) < end; i++) {
		wait_for(2 * i);
		first_has_it();
		__atomic_store_n(&turn, 2 * i + 1, __ATOMIC_RELEASE);
	}
	wait_for(2 * i);
	__atomic_store_n(&turn, -1, __ATOMIC_RELEASE);
	CHECK(pthread_join(thread, NULL) == 0);
	printf("calls: %ld first_has_it\ncalls: %ld second_has_it\n", i, i);
	return 0;
}
