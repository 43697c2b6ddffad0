/* Functions with parameters and results in every place of a calling convention, among others: vector and mask
 * registers, the x87 stack, Windows' registers, the static chain, two registers, memory. Also with another rounding. */
#define _GNU_SOURCE
#include "hard.h"
#include <complex.h>
#include <fenv.h>
#include <immintrin.h>
#include <math.h>
#include <stdarg.h>

enum { ROUNDS = 20000 };

struct large {
	long a, b, c, d, e;
	double f;
};
struct pair {
	double x, y;
};
struct mixed {
	long n;
	double x;
};

KEPT __attribute__((ms_abi)) static long windows(long a, long b, long c, long d, long e, double f)
{
	EFFECT();
	return a + 2 * b + 3 * c + 4 * d + 5 * e + (long)f;
}

KEPT static __int128 wide(__int128 a, long b)
{
	EFFECT();
	return a * b;
}

KEPT static _Complex long double square(_Complex long double z)
{
	EFFECT();
	return z * z + 1;
}

KEPT static long double third(long double a)
{
	EFFECT();
	return a / 3;
}

KEPT static struct large in_memory(struct large x, int n)
{
	EFFECT();
	x.a += n;
	x.f *= 2;
	return x;
}

KEPT static struct pair swapped(struct pair x)
{
	EFFECT();
	return (struct pair){ x.y, x.x };
}

KEPT static struct mixed in_both(struct mixed x)
{
	EFFECT();
	return (struct mixed){ x.n + 1, x.x * 2 };
}

KEPT static double sum_of(int count, ...)
{
	va_list rest;
	double sum = 0;
	va_start(rest, count);
	while (count--)
		sum += va_arg(rest, double);
	va_end(rest);
	EFFECT();
	return sum;
}

KEPT __attribute__((target("general-regs-only"), no_caller_saved_registers)) static long keeps_all(long a)
{
	EFFECT();
	return a + 1;
}

KEPT static int comparisons(int least)
{
	int count = 0, words[] = { 8, 7, 6, 5, 4, 3, 2, least };
	int compare(const void *a, const void *b)
	{
		count++;
		return *(const int *)a - *(const int *)b;
	}
	qsort(words, 8, sizeof *words, compare);
	CHECK(words[0] == least && words[7] == 8);
	return count;
}

KEPT __attribute__((target("avx2"))) static __m256d twice(__m256d a)
{
	EFFECT();
	return _mm256_add_pd(a, a);
}

__attribute__((target("avx2"))) static void vectors(void)
{
	double out[4];
	_mm256_storeu_pd(out, twice(_mm256_set_pd(1, 2, 3, 4)));
	CHECK(out[0] == 8 && out[3] == 2);
}

KEPT __attribute__((target("avx512f,avx512bw"))) static __mmask64 equal(__m512i a, __m512i b)
{
	EFFECT();
	return _mm512_cmpeq_epi8_mask(a, b);
}

KEPT __attribute__((target("avx512f,avx512bw"))) static __m512i twice_where(__m512i a, __mmask64 mask)
{
	EFFECT();
	return _mm512_mask_add_epi8(a, mask, a, a);
}

__attribute__((target("avx512f,avx512bw"))) static void masks(void)
{
	char out[64];
	__m512i threes = _mm512_set1_epi8(3);
	CHECK(equal(threes, threes) == ~0ULL);
	_mm512_storeu_si512(out, twice_where(threes, 0xf0));
	CHECK(out[0] == 3 && out[4] == 6 && out[63] == 3);
}

int main(void)
{
	long sum = 0;
	int count = 0, has_vectors = __builtin_cpu_supports("avx2"), has_masks = __builtin_cpu_supports("avx512bw");
	for (int i = 0; i < ROUNDS; i++) {
		sum += windows(i, 2, 3, 4, 5, 6.5);
		CHECK(wide((__int128)1 << 100, i) == (__int128)i << 100);
		_Complex long double z = square(1 + 2 * I);
		CHECK(creall(z) == -2 && cimagl(z) == 4);
		CHECK(third(3) == 1);
		struct large large = in_memory((struct large){ 1, 2, 3, 4, 5, 6 }, i);
		CHECK(large.a == 1 + i && large.f == 12);
		struct pair pair = swapped((struct pair){ 1, 2 });
		CHECK(pair.x == 2 && pair.y == 1);
		struct mixed mixed = in_both((struct mixed){ 1, 2 });
		CHECK(mixed.n == 2 && mixed.x == 4);
		CHECK(sum_of(10, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.) == 55);
		CHECK(keeps_all(i) == i + 1);
		count += comparisons(1);
		if (has_vectors)
			vectors();
		if (has_masks)
			masks();
	}
	CHECK(fesetround(FE_UPWARD) == 0);
	for (int i = 0; i < ROUNDS; i++)
		CHECK(rint(sum_of(1, 0.5)) == 1 && fegetround() == FE_UPWARD);
	printf("%ld %d\n", sum, count);
	return 3;
}
