/* Counts by restartable sequences: a thread moved or interrupted within one without an abort loses its addition. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <sys/rseq.h>

enum { THREADS = 8, ADDED = 100000, PROCESSORS = 1024 };

static struct {
	long count;
	char room[56];
} counts[PROCESSORS];

KEPT static int add(void)
{
	struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
	unsigned processor = area->cpu_id_start;
	__asm__ goto("	jmp 9f\n"
		     "	.pushsection .data.rel.local, \"aw\"\n"
		     "	.balign 32\n"
		     "3:	.long 0, 0\n"
		     "	.quad 1f, 2f - 1f, 4f\n"
		     "	.popsection\n"
		     "9:	lea 3b(%%rip), %%rax\n"
		     "	mov %%rax, 8(%0)\n"
		     "1:	cmp %%ecx, 4(%0)\n"
		     "	jne 4f\n"
		     "	mov (%2), %%rdx\n"
		     "	inc %%rdx\n"
		     "	mov %%rdx, (%2)\n"
		     "2:	jmp 5f\n"
		     "	.long %c3\n"
		     "4:	jmp %l[again]\n"
		     "5:\n"
		     :
		     : "r"(area), "c"(processor), "r"(&counts[processor].count), "i"(RSEQ_SIG)
		     : "rax", "rdx", "memory", "cc"
		     : again);
	return 1;
again:
	return 0;
}

static void *work(void *unused)
{
	for (int left = ADDED; left;)
		left -= add();
	return unused;
}

int main(void)
{
	pthread_t threads[THREADS];
	long sum = 0;
	if (!__rseq_size) {
		puts("this system has no restartable sequences");
		return 0;
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], 0, work, 0) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], 0) == 0);
	for (int i = 0; i < PROCESSORS; i++)
		sum += counts[i].count;
	printf("%ld\n", sum);
	CHECK(sum == THREADS * ADDED);
	return 20;
}
