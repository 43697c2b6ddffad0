/* Calls in tail position, which -O2 turns into jumps: they must stay jumps, or the stack would overflow. */
#include "hard.h"

// calls: 500001 even
// calls: 500000 odd
// calls: 1000 first
// calls: 1000 second
// calls: 1000 third
// calls: 300 chooses
// calls: 100 choice_a
// calls: 100 choice_b
// calls: 100 choice_c
// calls: 400 stack_arguments
// calls: 400 stack_arguments_target

int odd(unsigned n);
int even(unsigned n);

KEPT int even(unsigned n)
{
	EFFECT();
	return n == 0 ? 1 : odd(n - 1);
}

KEPT int odd(unsigned n)
{
	EFFECT();
	return n == 0 ? 0 : even(n - 1);
}

KEPT static int third(int n)
{
	EFFECT();
	return n * 3;
}

KEPT static int second(int n)
{
	EFFECT();
	return third(n + 1);
}

KEPT static int first(int n)
{
	EFFECT();
	return second(n + 1);
}

KEPT static int choice_a(int n) { EFFECT(); return n; }
KEPT static int choice_b(int n) { EFFECT(); return n + 1; }
KEPT static int choice_c(int n) { EFFECT(); return n + 2; }

static int (*volatile choices[])(int) = {choice_a, choice_b, choice_c};

KEPT static int chooses(int n) { return choices[n % 3](n); }

KEPT static long stack_arguments_target(long a, long b, long c, long d, long e, long f, long g, long h)
{
	EFFECT();
	return a - b + c - d + e - f + 3 * g - h;
}

KEPT static long stack_arguments(long a, long b, long c, long d, long e, long f, long g, long h)
{
	EFFECT();
	return stack_arguments_target(b, a, d, c, f, e, h, g);
}

int main(void)
{
	CHECK(even(1000000) == 1);
	for (int i = 0; i < 1000; i++)
		CHECK(first(i) == 3 * i + 6);
	for (int i = 0; i < 300; i++)
		CHECK(chooses(i) == i + i % 3);
	for (long i = 0; i < 400; i++)
		CHECK(stack_arguments(i, 2, 3, 4, 5, 6, 7, 8) == 2 - i + 4 - 3 + 6 - 5 + 24 - 7);
	puts("tail calls");
	return 0;
}
