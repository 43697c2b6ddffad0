/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * locks SLICES PAIRS: locks and unlocks a mutex that no other thread wants, PAIRS times in each slice, and reads the clock
 * as often. Prints the ticks of a pair and of two clock reads in the best slice. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void less(double *best, unsigned long long since, long count)
{
	double each = (double)(__rdtsc() - since) / (double)count;
	if (each < *best)
		*best = each;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	long slices = atol(argv[1]), pairs = atol(argv[2]);
	double pair = 1e18, clock = 1e18;
	for (long slice = 0; slice < slices; slice++) {
		unsigned long long since = __rdtsc();
		for (long i = 0; i < pairs; i++) {
			pthread_mutex_lock(&mutex);
			pthread_mutex_unlock(&mutex);
		}
		less(&pair, since, pairs);
		since = __rdtsc();
		for (long i = 0; i < pairs; i++)
			__asm__ volatile("" ::"r"(__rdtsc()), "r"(__rdtsc()));
		less(&clock, since, pairs);
	}
	printf("pair %f\nclock %f\n", pair, clock);
	return 0;
}
