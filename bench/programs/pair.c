/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * pair SLICES CALLS: measures the time of a call, in turn with that of two reads of the clock, since the processor's speed
 * changes from one moment to the next. Prints a line for each: its name, and nanoseconds a call over all slices.
 *
 * empty, leaf and fib are traced; the callers of leaf are not.
 */
#include "measure.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

#define CALLERS 15
#define FIB 32
#define FIB_CALLS 7049155

#define NOINLINE __attribute__((noinline, noclone))

NOINLINE void empty(void)
{
	__asm__ volatile("");
}

NOINLINE void leaf(void)
{
	__asm__ volatile("");
}

NOINLINE long fib(long n)
{
	if (n < 2)
		return n;
	return fib(n - 1) + fib(n - 2);
}

NOINLINE static void caller(int more)
{
	if (more > 1)
		caller(more - 1);
	else
		leaf();
	__asm__ volatile("");
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	long slices = atol(argv[1]);
	long calls = atol(argv[2]);
	double clock = 0, empties = 0, leaves = 0;
	for (long slice = 0; slice < slices; slice++) {
		double start = nanoseconds();
		for (long i = 0; i < calls; i++) {
			__rdtsc();
			__rdtsc();
		}
		double clock_end = nanoseconds();
		for (long i = 0; i < calls; i++)
			empty();
		double empty_end = nanoseconds();
		for (long i = 0; i < calls; i++)
			caller(CALLERS);
		double leaf_end = nanoseconds();
		clock += clock_end - start;
		empties += empty_end - clock_end;
		leaves += leaf_end - empty_end;
	}
	double start = nanoseconds();
	long result = fib(FIB);
	double fib_time = nanoseconds() - start;
	if (result != 2178309)
		return 1;
	double total = (double)slices * calls;
	printf("clock %f\nempty %f\nleaf %f\nfib %f\n", clock / total, empties / total, leaves / total, fib_time / FIB_CALLS);
	return 0;
}
