/* 100,000 frames on the main stack, a million on a thread's large one, over and over. */
#include "hard.h"
#include <pthread.h>

// calls: 500005 descend
// calls: 1000001 descend_far

KEPT static long descend(long left) { return left ? RETURNED(descend(left - 1)) + 1 : 0; }
KEPT static long descend_far(long left) { return left ? RETURNED(descend_far(left - 1)) + 2 : 0; }

static void *body(void *unused)
{
	CHECK(descend_far(1000000) == 2000000);
	return unused;
}

int main(void)
{
	for (int i = 0; i < 5; i++)
		CHECK(descend(100000) == 100000);
	puts("deep");
	pthread_attr_t attributes;
	pthread_t thread;
	pthread_attr_init(&attributes);
	CHECK(pthread_attr_setstacksize(&attributes, 256 << 20) == 0);
	CHECK(pthread_create(&thread, &attributes, body, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	puts("deeper");
	return 0;
}
