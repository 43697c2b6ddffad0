/* Threads that give themselves a name at once, and end. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>

enum { THREADS = 20 };

KEPT static int leaf(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static void *run(void *number)
{
	char name[16];
	leaf(1);
	snprintf(name, sizeof name, "brief-%d", (int)(long)number);
	CHECK(pthread_setname_np(pthread_self(), "other") == 0);
	CHECK(pthread_setname_np(pthread_self(), name) == 0);
	return 0;
}

int main(void)
{
	for (long i = 0; i < THREADS; i++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, run, (void *)i) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	printf("calls: %d leaf\n", THREADS);
	return 0;
}
