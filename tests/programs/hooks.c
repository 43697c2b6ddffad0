/* Compiled with hooks or room for them, in each way that compilers offer. */
#include "hard.h"

// calls: 1 main
// calls: 177 fib
// calls: 1000 leaf
// calls: 10 walk
// calls: 100 visit

KEPT static int fib(int n) { return n < 2 ? n : RETURNED(fib(n - 1)) + RETURNED(fib(n - 2)); }

KEPT static long leaf(long n)
{
	EFFECT();
	return n * 3;
}

KEPT static int visit(int n)
{
	static volatile int visits;
	return n + visits++ % 2;
}

KEPT static int walk(int (*function)(int))
{
	int sum = 0;
	for (int i = 0; i < 10; i++)
		sum += function(i);
	return sum;
}

int main(void)
{
	printf("fib %d\n", fib(10));
	long sum = 0;
	for (int i = 0; i < 1000; i++)
		sum += leaf(i);
	for (int i = 0; i < 10; i++)
		sum += walk(visit);
	printf("sum %ld\n", sum);
	return 0;
}
