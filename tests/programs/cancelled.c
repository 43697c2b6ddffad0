/* Threads that are cancelled at any instruction of recorded functions, and of the recording itself. */
#include "hard.h"
#include <pthread.h>

enum { ROUNDS = 60 };

static int cleaned;

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

static void clean(void *unused)
{
	(void)unused;
	__atomic_add_fetch(&cleaned, 1, __ATOMIC_SEQ_CST);
}

static void *work(void *begun)
{
	int before;
	volatile long sum = 0;
	pthread_cleanup_push(clean, 0);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
	__atomic_store_n((int *)begun, 1, __ATOMIC_SEQ_CST);
	for (;;)
		sum += leaf(sum);
	pthread_cleanup_pop(0);
	return 0;
}

int main(void)
{
	int cancelled = 0;
	for (int round = 0; round < ROUNDS; round++) {
		int begun = 0;
		void *result;
		pthread_t thread;
		CHECK(pthread_create(&thread, 0, work, &begun) == 0);
		while (!__atomic_load_n(&begun, __ATOMIC_SEQ_CST))
			;
		for (volatile int wait = 0; wait < round * 7919 % 100000; wait++)
			;
		CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
		cancelled += result == PTHREAD_CANCELED;
	}
	printf("%d %d\n", cancelled, cleaned);
	return 11;
}
