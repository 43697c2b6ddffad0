/* Threads with the smallest possible stacks, with guard pages at both ends, used nearly to the last byte. */
#define _GNU_SOURCE
#include "hard.h"
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

// calls: 64000 descend

#define STACK 16384
#define PAGE 4096

KEPT static int descend(int n)
{
	volatile char used[64];
	used[n % 64] = 1;
	return n == 0 ? used[0] : RETURNED(descend(n - 1)) + 1;
}

static void *run(void *unused)
{
	(void)unused;
	long sum = 0;
	for (int i = 0; i < 10; i++)
		sum += descend(49);
	return (void *)sum;
}

int main(void)
{
	long total = 0;
	for (int round = 0; round < 32; round++) {
		pthread_t threads[4];
		char *stacks[4];
		for (int i = 0; i < 4; i++) {
			stacks[i] = mmap(NULL, STACK + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			CHECK(stacks[i] != MAP_FAILED);
			CHECK(mprotect(stacks[i] + PAGE, STACK, PROT_READ | PROT_WRITE) == 0);
			pthread_attr_t attributes;
			pthread_attr_init(&attributes);
			CHECK(pthread_attr_setstack(&attributes, stacks[i] + PAGE, STACK) == 0);
			CHECK(pthread_create(&threads[i], &attributes, run, NULL) == 0);
		}
		for (int i = 0; i < 4; i++) {
			void *sum;
			pthread_join(threads[i], &sum);
			total += (long)sum;
			munmap(stacks[i], STACK + 2 * PAGE);
		}
	}
	printf("%ld\n", total);
	return 0;
}
