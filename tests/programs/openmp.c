/* Parallel regions of OpenMP: many short ones, nested ones, reductions, tasks, ordered loops, locks. */
#include "hard.h"
#include <omp.h>

#define REGIONS 300
#define THREADS 4

KEPT static long step(long value) { return value * 1103515245 % 2147483647 + 12345; }

KEPT static long tree(int depth, long value)
{
	if (depth == 0)
		return step(value);
	long left, right;
#pragma omp task shared(left)
	left = tree(depth - 1, value * 2);
#pragma omp task shared(right)
	right = tree(depth - 1, value * 2 + 1);
#pragma omp taskwait
	return left ^ right;
}

KEPT static long regions(void)
{
	long sum = 0;
	for (int region = 0; region < REGIONS; region++) {
#pragma omp parallel for num_threads(THREADS) reduction(+ : sum) schedule(dynamic, 3)
		for (int i = 0; i < 20; i++)
			sum += step(region + i) & 0xff;
	}
	return sum;
}

KEPT static long nested(void)
{
	long sum = 0;
#pragma omp parallel for num_threads(2) reduction(+ : sum)
	for (int i = 0; i < 40; i++) {
		long inner = 0;
#pragma omp parallel for num_threads(2) reduction(^ : inner)
		for (int j = 0; j < 40; j++)
			inner ^= step(i * 40 + j);
		sum += inner & 0xffff;
	}
	return sum;
}

KEPT static long ordered(void)
{
	long value = 1;
#pragma omp parallel for num_threads(THREADS) ordered schedule(static, 1)
	for (int i = 0; i < 200; i++) {
		long mine = step(i);
#pragma omp ordered
		value = step(value ^ mine);
	}
	return value;
}

KEPT static long locked(void)
{
	omp_lock_t lock;
	omp_init_lock(&lock);
	long sum = 0;
#pragma omp parallel num_threads(THREADS)
	for (int i = 0; i < 500; i++) {
		omp_set_lock(&lock);
		sum += step(i) & 1;
		omp_unset_lock(&lock);
	}
	omp_destroy_lock(&lock);
	return sum;
}

int main(void)
{
	long found = 0;
	omp_set_max_active_levels(2);
	printf("regions %ld\n", regions());
	printf("nested %ld\n", nested());
#pragma omp parallel num_threads(THREADS)
#pragma omp single
	found = tree(9, 1);
	printf("tasks %ld\n", found);
	printf("ordered %ld\n", ordered());
	printf("locked %ld\n", locked());
	return 0;
}
// calls: 1 regions
// calls: 1 nested
// calls: 1 ordered
// calls: 1 locked
// calls: 1023 tree
// calls: 10512 step
