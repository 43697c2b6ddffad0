/* A thread that calls, gets a name, calls, gets another name, and goes on calling: with each name until standard input
 * has a byte or ends. */
#define _GNU_SOURCE
#include "hard.h"
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

static long calls;

KEPT static int leaf(int n)
{
	EFFECT();
	return n + 1;
}

static void call(void)
{
	for (int n = 0; n < 1000; n++, calls++)
		leaf(n);
}

static void *run(void *unused)
{
	static const char *const names[] = { "first", "second" };
	struct pollfd input = { 0, POLLIN, 0 };
	char byte;
	call();
	for (int i = 0; i < 2; i++) {
		CHECK(pthread_setname_np(pthread_self(), names[i]) == 0);
		do {
			call();
			usleep(1000);
		} while (poll(&input, 1, 0) == 0);
		CHECK(read(0, &byte, 1) >= 0);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	printf("calls: %ld leaf\n", calls);
	return 0;
}
