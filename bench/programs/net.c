/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of four durations, each under two callers, and the same functions a second time under other names: one set is
 * to be traced, the other not. Both are called in turn, since the processor's speed changes from one moment to the next.
 * Prints the median duration of each outermost function that begins with `bare_`, in nanoseconds.
 */
#include "measure.h"
#include <stdio.h>
#include <stdlib.h>

#define KEPT __attribute__((noinline, noclone, noipa))
#define MOST_CALLS 2000

/* A turn takes one clock cycle. */
static inline __attribute__((always_inline)) void spin(long turns)
{
	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(turns) : : "cc");
}

#define NAMED(prefix, name, turns)                                                                                   \
	KEPT void prefix##spin_##name(void) { spin(turns); }                                                         \
	KEPT void prefix##middle_##name(void)                                                                        \
	{                                                                                                            \
		for (int i = 0; i < 10; i++)                                                                         \
			prefix##spin_##name();                                                                       \
	}                                                                                                            \
	KEPT void prefix##outer_##name(void)                                                                         \
	{                                                                                                            \
		for (int i = 0; i < 10; i++)                                                                         \
			prefix##middle_##name();                                                                     \
	}
#define FUNCTIONS(name, turns) NAMED(, name, turns) NAMED(bare_, name, turns)

FUNCTIONS(50ns, 150)
FUNCTIONS(200ns, 600)
FUNCTIONS(1us, 3000)
FUNCTIONS(10us, 30000)

static int ascending(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;
	return difference < 0 ? -1 : difference > 0;
}

static void measure(const char *name, void (*outer)(void), void (*bare)(void), int calls)
{
	static double times[MOST_CALLS];
	for (int i = 0; i < calls; i++) {
		outer();
		double begin = nanoseconds();
		bare();
		times[i] = nanoseconds() - begin;
	}
	qsort(times, calls, sizeof times[0], ascending);
	printf("%s %.1f\n", name, times[calls / 2]);
}

int main(void)
{
	measure("50ns", outer_50ns, bare_outer_50ns, MOST_CALLS);
	measure("200ns", outer_200ns, bare_outer_200ns, 500);
	measure("1us", outer_1us, bare_outer_1us, 101);
	measure("10us", outer_10us, bare_outer_10us, 21);
	return 0;
}
