/* Threads that run out of stack again and again, and jump out of the handler of the fault. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

enum { THREADS = 3, ROUNDS = 15, HANDLERS_STACK = 64 << 10 };

static __thread sigjmp_buf back;

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

KEPT static long down(long n)
{
	volatile char room[300];
	room[0] = (char)n;
	return RETURNED(down(n + 1)) + room[0];
}

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

static void *work(void *unused)
{
	stack_t stack = { .ss_sp = malloc(HANDLERS_STACK), .ss_size = HANDLERS_STACK };
	volatile long faults = 0, sum = 0;
	(void)unused;
	CHECK(stack.ss_sp && sigaltstack(&stack, 0) == 0);
	for (volatile int round = 0; round < ROUNDS; round++) {
		if (sigsetjmp(back, 1))
			faults++;
		else
			down(0);
		for (int i = 0; i < 1000; i++)
			sum += leaf(i);
	}
	stack.ss_flags = SS_DISABLE;
	sigaltstack(&stack, 0);
	free(stack.ss_sp);
	return (void *)(faults * 1000000000 + sum);
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_ONSTACK };
	CHECK(sigaction(SIGSEGV, &action, 0) == 0);
	long sum = (long)work(0);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], 0, work, 0) == 0);
	for (int i = 0; i < THREADS; i++) {
		void *result;
		CHECK(pthread_join(threads[i], &result) == 0);
		sum += (long)result;
	}
	printf("%ld\n", sum);
	return 10;
}
