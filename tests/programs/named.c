/* A thread that calls, gets a name, calls, gets another, and goes on calling. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <unistd.h>

// calls: 90000 leaf

KEPT static int leaf(int n)
{
	EFFECT();
	return n + 1;
}

static void *run(void *unused)
{
	static const char *const names[] = { "first", "second", NULL };
	for (int i = 0; i < 3; i++) {
		for (int n = 0; n < 30000; n++)
			leaf(n);
		if (names[i])
			CHECK(pthread_setname_np(pthread_self(), names[i]) == 0);
		usleep(300000);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	puts("named");
	return 0;
}
