/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * threads THREADS CALLS: each thread calls `work` CALLS times, all at full speed. Prints the time in nanoseconds. */
#include "measure.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long calls;

__attribute__((noinline, noclone)) void work(void)
{
	__asm__ volatile("");
}

static void *thread(void *unused)
{
	for (long i = 0; i < calls; i++)
		work();
	return unused;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int threads = atoi(argv[1]);
	calls = atol(argv[2]);
	pthread_t *all = calloc(threads, sizeof *all);
	double start = nanoseconds();
	for (int i = 0; i < threads; i++)
		if (pthread_create(&all[i], NULL, thread, NULL))
			return 1;
	for (int i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
	printf("time %f\n", nanoseconds() - start);
	free(all);
	return 0;
}
