/* Passes each of its markers as often as a line of input states. */
#include <nopal.h>
#include <stdio.h>

/* The marker is among the first instructions, which a traced call displaces. */
__attribute__((noinline)) static int first(int n)
{
	NOPAL_MARK(first, "n=%d", n);
	return n + 1;
}

__attribute__((noinline)) static long within(long n)
{
	volatile long kept[4] = { n, n + 1, n + 2, n + 3 };
	NOPAL_MARK(within, "n=%ld", n);
	NOPAL_MARK_GENERIC(tested, "n=%ld", n);
	return kept[n & 3];
}

int main(void)
{
	long sum = 0, times;
	while (scanf("%ld", &times) == 1) {
		for (long n = 0; n < times; n++)
			sum += first((int)n) + within(n);
		puts("done");
		fflush(stdout);
	}
	printf("%ld\n", sum);
	return 5;
}
