/* clang's own calling conventions: functions that keep nearly all registers, or take many. */
#include "hard.h"

enum { ROUNDS = 100000 };

static volatile long sum_of_most, sum_of_all;

KEPT __attribute__((preserve_most)) void most(long a)
{
	sum_of_most += a;
}

KEPT __attribute__((preserve_all)) void all(long a)
{
	sum_of_all += a;
}

KEPT __attribute__((preserve_most)) void most_through(long a)
{
	EFFECT();
	most(a + 1);
	EFFECT();
}

KEPT __attribute__((regcall)) long by_registers(long a, long b, long c, long d, long e, long f, long g, long h, long i,
						long j, long k)
{
	EFFECT();
	return a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 + h * 8 + i * 9 + j * 10 + k * 11;
}

KEPT __attribute__((vectorcall)) double by_vectors(double a, double b, double c, double d, double e, double f)
{
	EFFECT();
	return a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6;
}

KEPT __attribute__((swiftcall)) long by_context(__attribute__((swift_context)) void *context, long a)
{
	EFFECT();
	return a + (long)context;
}

/* All values stay in registers across the calls. */
KEPT long around(long a, long b, long c, long d, long e, long f)
{
	EFFECT();
	long x = a * 3, y = b * 5, z = c * 7, u = d * 9, v = e * 11, w = f * 13;
	most(a);
	most_through(b);
	return x + y + z + u + v + w + a * b * c * d * e * f;
}

KEPT double around_all(double a, double b, double c, double d)
{
	EFFECT();
	all(1);
	double x = a * 3 + b * 4 + c * 5 + d * 6;
	all(2);
	EFFECT();
	return x + a * b * c * d;
}

int main(void)
{
	long sum = 0;
	double other = 0;
	for (long i = 0; i < ROUNDS; i++) {
		sum += around(i, 2, 3, 4, 5, 6);
		other += around_all((double)i, 2, 3, 4);
		sum += by_registers(i, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
		other += by_vectors((double)i, 2, 3, 4, 5, 6);
		sum += by_context((void *)5, i);
	}
	printf("%ld %f %ld %ld\n", sum, other, sum_of_most, sum_of_all);
	return 4;
}
