/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Measures the cycles of the time stamp counter for one turn of a loop, the least of many runs. */
#ifndef LOOPS_H
#define LOOPS_H

#include <stdio.h>
#include <x86intrin.h>

#define TURNS 20000
#define RUNS 400

/* If set, no time is measured: a debugger counts the instructions of one turn and of two, between breakpoints. */
static int counted;

static double least(void (*loop)(long), long turns)
{
	double least = 1e9;
	for (long once = 1; counted && once <= 2; once++) {
		loop(once);
		__asm__ volatile("int3" ::: "memory");
		loop(once);
		__asm__ volatile("int3" ::: "memory");
	}
	if (counted)
		return 0;
	for (int run = 0; run < RUNS; run++) {
		unsigned long long before = __rdtsc();
		loop(turns);
		double cycles = (double)(__rdtsc() - before) / (double)turns;
		least = cycles < least ? cycles : least;
	}
	return least;
}

#define LOOP(name, ...)                                                                                              \
	__attribute__((noinline)) static void name(long turns)                                                      \
	{                                                                                                            \
		for (long i = 0; i < turns; i++) {                                                                  \
			__asm__ volatile("" : "+r"(i));                                                             \
			__VA_ARGS__;                                                                                \
		}                                                                                                    \
	}

static unsigned long long sink;
static void *pointer = &sink;

#define SHOW(name, turns) printf(#name " %.3f\n", least(name, turns))

#endif
