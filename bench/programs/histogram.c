/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * histogram SLICES UPDATES: adds UPDATES values of all sizes to the core's histogram in each slice. Prints the
 * nanoseconds of an update in the best slice, without those of making its value. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "histogram.h"

#define VALUES 4096

static struct nopal_histogram histogram;
static uint64_t values[VALUES];

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	long slices = atol(argv[1]), updates = atol(argv[2]);
	uint64_t random = 1;
	for (int i = 0; i < VALUES; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		/* Latencies have any number of digits, up to some seconds. */
		values[i] = random >> 32 >> (random & 31);
	}
	double best = 1e18;
	for (long slice = 0; slice < slices; slice++) {
		double since = now();
		for (long i = 0; i < updates; i++)
			nopal_histogram_add(&histogram, values[i % VALUES]);
		double each = (now() - since) / (double)updates;
		if (each < best)
			best = each;
	}
	printf("update %f\n", best);
	return 0;
}
