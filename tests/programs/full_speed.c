/* Threads that only call: they make more records than any buffer holds. Arguments: threads, calls of each. */
#include "hard.h"
#include <pthread.h>

static long calls;

KEPT static long leaf(long value)
{
	EFFECT();
	return value + 1;
}

static void *hot(void *unused)
{
	long value = 0;
	for (long i = 0; i < calls; i++)
		value = leaf(value);
	CHECK(value == calls);
	return unused;
}

int main(int count, char **words)
{
	CHECK(count == 3);
	int threads = atoi(words[1]);
	calls = atol(words[2]);
	pthread_t all[64];
	CHECK(threads <= 64);
	for (int i = 0; i < threads; i++)
		CHECK(pthread_create(&all[i], NULL, hot, NULL) == 0);
	for (int i = 0; i < threads; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
	printf("calls: %ld leaf\ncalls: %d hot\n", calls * threads, threads);
	return 0;
}
