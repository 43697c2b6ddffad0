/* Handlers on alternate stacks: deep recursion on one, a caught overflow of the main stack and of a thread's, and a
 * stack that changes between signals. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

// calls: 60 on_user
// calls: 60060 deep
// calls: 6 on_overflow

static volatile int handled;

KEPT static int deep(int left) { return left ? RETURNED(deep(left - 1)) + 1 : 0; }

KEPT static void on_user(int signal)
{
	int here;
	stack_t now;
	(void)signal;
	CHECK(sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_ONSTACK);
	CHECK((char *)&here > (char *)now.ss_sp && (char *)&here < (char *)now.ss_sp + now.ss_size);
	CHECK(deep(1000) == 1000);
	handled++;
}

static void *use_stack(size_t size)
{
	stack_t stack = {.ss_size = size};
	stack.ss_sp = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(stack.ss_sp != MAP_FAILED && sigaltstack(&stack, NULL) == 0);
	return stack.ss_sp;
}

static __thread sigjmp_buf back;

KEPT static void on_overflow(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

KEPT static int endless(volatile char *above)
{
	volatile char here[200];
	here[0] = above[0];
	return endless(here) + here[0];
}

static void *overflow(void *unused)
{
	void *stack = use_stack(64 << 10);
	for (volatile int i = 0; i < 3; i++)
		if (sigsetjmp(back, 1) == 0)
			endless((char[1]){1});
	stack_t off = {.ss_flags = SS_DISABLE};
	CHECK(sigaltstack(&off, NULL) == 0);
	munmap(stack, 64 << 10);
	return unused;
}

int main(void)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_user;
	action.sa_flags = SA_ONSTACK;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (int i = 0; i < 6; i++) {
		size_t size = (size_t)(128 + 64 * i) << 10;
		void *stack = use_stack(size);
		for (int j = 0; j < 10; j++)
			raise(SIGUSR1);
		stack_t off = {.ss_flags = SS_DISABLE};
		CHECK(sigaltstack(&off, NULL) == 0);
		munmap(stack, size);
	}
	printf("handled %d\n", handled);

	action.sa_handler = on_overflow;
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	struct rlimit small;
	getrlimit(RLIMIT_STACK, &small);
	small.rlim_cur = 1 << 20;
	CHECK(setrlimit(RLIMIT_STACK, &small) == 0);
	overflow(NULL);
	puts("main stack");
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, overflow, NULL) == 0);
	pthread_join(thread, NULL);
	puts("thread's stack");
	return 0;
}
