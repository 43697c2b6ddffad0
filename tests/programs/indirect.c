/* Functions that are selected when the program starts (IFUNC), called directly, by pointer, and from a library. */
#include "hard.h"
#include <string.h>

// calls: 1000 fast
// calls: 0 slow

KEPT static int fast(int n)
{
	EFFECT();
	return n * 38 + 6;
}

KEPT static int slow(int n)
{
	EFFECT();
	return n * 19 * 2 + 6;
}

static int (*choose(void))(int)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("sse2") ? fast : slow;
}

int chosen(int n) __attribute__((ifunc("choose")));

int main(void)
{
	int (*volatile pointer)(int) = chosen;
	int sum = 0;
	for (int i = 0; i < 500; i++)
		sum += chosen(i) + pointer(i);
	printf("%d %zu\n", sum, strlen("a string whose length is found by a function chosen likewise"));
	return 0;
}
