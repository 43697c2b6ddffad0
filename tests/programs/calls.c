/* Calls of every shape: arguments in registers and on the stack, floating point, structures, variable arguments,
 * pointers to functions, and plain recursion. */
#include "hard.h"
#include <complex.h>
#include <stdarg.h>
#include <string.h>

// calls: 1 main
// calls: 21891 fib
// calls: 1000 many
// calls: 1000 mixed
// calls: 500 variadic
// calls: 200 by_value
// calls: 100 long_double
// calls: 100 complex_double
// calls: 300 wide_result
// calls: 10 ascending
// calls: 1000 empty

struct large { long values[12]; };
struct wide { long low, high; };

KEPT static int fib(int n) { return n < 2 ? n : RETURNED(fib(n - 1)) + RETURNED(fib(n - 2)); }

KEPT static long many(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j)
{
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}

KEPT static double mixed(int a, double b, long c, float d, double e, double f, double g, double h, double i, double j,
                         double k)
{
	return a + b + (double)c + d + e + f + g + h + i + 2 * j + 3 * k;
}

KEPT static double variadic(int count, ...)
{
	va_list list;
	double sum = 0;
	va_start(list, count);
	for (int i = 0; i < count; i++)
		sum += i % 2 ? va_arg(list, double) : va_arg(list, int);
	va_end(list);
	return sum;
}

KEPT static struct large by_value(struct large in)
{
	for (int i = 0; i < 12; i++)
		in.values[i] += i;
	return in;
}

KEPT static long double long_double(long double a, long double b) { return a * 2 + b; }
KEPT static double complex complex_double(double complex a) { return a * a; }
KEPT static struct wide wide_result(long a) { return (struct wide){a, -a}; }
KEPT static void empty(void) { EFFECT(); }

static int comparisons;

KEPT static int ascending(const void *a, const void *b)
{
	comparisons++;
	return *(const int *)a - *(const int *)b;
}

int main(void)
{
	printf("fib %d\n", fib(20));
	long sum = 0;
	double real = 0;
	for (long i = 0; i < 1000; i++) {
		sum += many(i, 1, 2, 3, 4, 5, 6, 7, 8, i);
		real += mixed(1, 2, i, 4, 5, 6, 7, 8, 9, 10, 0.5);
		empty();
	}
	printf("many %ld mixed %.1f\n", sum, real);
	real = 0;
	for (int i = 0; i < 500; i++)
		real += variadic(6, 1, 2.5, 3, 4.5, 5, i * 0.5);
	printf("variadic %.1f\n", real);
	struct large large;
	memset(&large, 0, sizeof large);
	for (int i = 0; i < 200; i++)
		large = by_value(large);
	CHECK(large.values[11] == 2200);
	long double wide = 0;
	for (int i = 0; i < 100; i++)
		wide = long_double(0.25L, wide / 2);
	double complex turn = 1;
	for (int i = 0; i < 100; i++)
		turn = complex_double(turn * I);
	printf("long double %.3Lf complex %.1f %.1f\n", wide, creal(turn), cimag(turn));
	for (long i = 0; i < 300; i++) {
		struct wide both = wide_result(i);
		CHECK(both.low == i && both.high == -i);
	}
	int (*volatile through_pointer)(const void *, const void *) = ascending;
	for (int i = 0; i < 10; i++)
		CHECK(through_pointer(&(int){i}, &(int){5}) == i - 5);
	printf("comparisons %d\n", comparisons);
	return 0;
}
