/* Writes a jump over the first instructions of its own function, and back the former bytes, as interceptors of calls
 * do. */
#define _GNU_SOURCE
#include "hard.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { JUMP = 5, ROUNDS = 200, CALLS = 1000, PAGE = 4096 };

KEPT __attribute__((aligned(64))) static long one(long n)
{
	EFFECT();
	return n + 1;
}

KEPT __attribute__((aligned(64))) static long two(long n)
{
	EFFECT();
	return n + 2;
}

KEPT static long apart(long n)
{
	EFFECT();
	return n + 3;
}

static void patch(void *at, const void *bytes)
{
	char *page = (char *)((unsigned long)at & ~(PAGE - 1UL));
	CHECK(mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	memcpy(at, bytes, JUMP);
	CHECK(mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC) == 0);
}

int main(void)
{
	long sum = 0;
	for (int round = 0; round < ROUNDS; round++) {
		unsigned char before[JUMP], jump[JUMP] = { 0xe9 };
		int distance = (int)((char *)two - ((char *)one + JUMP));
		memcpy(before, (void *)one, JUMP);
		memcpy(jump + 1, &distance, sizeof distance);
		patch((void *)one, jump);
		usleep(3000);
		for (int i = 0; i < CALLS; i++) {
			CHECK(one(i) == i + 2);
			sum += apart(i);
		}
		patch((void *)one, before);
		for (int i = 0; i < CALLS; i++)
			CHECK(one(i) == i + 1);
	}
	printf("%ld\n", sum);
	return 15;
}
