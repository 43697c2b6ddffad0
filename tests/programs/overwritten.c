/* A long call whose own begin a flight recorder has given up when it ends. */
#include "hard.h"

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

KEPT static long slow(long calls, long other)
{
	long sum = other;
	for (long i = 0; i < calls; i++)
		sum += leaf(i);
	return sum;
}

KEPT static long request(long calls)
{
	long sum = slow(calls, 4711);
	EFFECT();
	return sum;
}

int main(void)
{
	for (int i = 0; i < 100; i++)
		CHECK(request(2) == 4711 + 3);
	CHECK(request(300000) == 4711 + 45000150000);
	puts("overwritten");
	return 0;
}
