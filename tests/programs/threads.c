/* Many threads, in waves: the first argument is their number in all, the second their number at once. */
#include "hard.h"
#include <pthread.h>

#define STEPS 3

static pthread_barrier_t all_here;

KEPT static long step(long seed) { return seed * 1103515245 + 12345; }

KEPT static void *body(void *argument)
{
	long value = (long)argument;
	pthread_barrier_wait(&all_here);
	for (int i = 0; i < STEPS; i++)
		value = step(value);
	return (void *)value;
}

int main(int count, char **words)
{
	CHECK(count == 3);
	long total = atol(words[1]), at_once = atol(words[2]);
	pthread_t *threads = calloc((size_t)at_once, sizeof *threads);
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 64 << 10);
	unsigned long sum = 0;
	for (long done = 0; done < total; done += at_once) {
		pthread_barrier_init(&all_here, NULL, (unsigned)at_once);
		for (long i = 0; i < at_once; i++)
			CHECK(pthread_create(&threads[i], &attributes, body, (void *)(done + i)) == 0);
		for (long i = 0; i < at_once; i++) {
			void *result;
			CHECK(pthread_join(threads[i], &result) == 0);
			sum += (unsigned long)result;
		}
		pthread_barrier_destroy(&all_here);
	}
	free(threads);
	printf("sum %lx\n", sum);
	printf("calls: %ld body\ncalls: %ld step\n", total, total * STEPS);
	return 0;
}
