/* A program that steps through itself by the trap flag, and whose handler calls traced functions at every step, also on
 * its own stack:
 *     here: on the stack that it interrupts
 *     aside: on a stack for signals
 *     leap: as here, and jumps within the handler
 * It interrupts calls, markers, jumps, and a tracer's work for them; with the path of a library as second argument,
 * also the tracer's work when that is loaded. */
#define _GNU_SOURCE
#include "hard.h"
#include <dlfcn.h>
#include "../../include/nopal.h"
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100

static volatile int stepping, leaps;
static volatile long steps, traps;

KEPT static long in_handler(long n) { return n > 0 ? RETURNED(in_handler(n - 1)) + 1 : 0; }

KEPT static void on_trap(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	(void)information;
	traps++;
	if (!stepping) {
		registers[REG_EFL] &= ~TRAP_FLAG;
		return;
	}
	registers[REG_EFL] |= TRAP_FLAG;
	steps++;
	CHECK(in_handler(1) == 1);
	if (leaps) {
		jmp_buf here;
		if (setjmp(here) == 0)
			longjmp(here, 1);
		CHECK(in_handler(0) == 0);
	}
}

KEPT static long leaf(long n)
{
	NOPAL_MARK(leaf_reached, "%ld", n);
	EFFECT();
	return n + 1;
}

KEPT static long tree(long n) { return n > 0 ? RETURNED(tree(n - 1)) + RETURNED(leaf(n)) : 1; }

/* Recurses into parts of the stack where nothing was recorded yet. */
KEPT static long deep(long n)
{
	volatile char room[4096];
	room[0] = 1;
	return n > 0 ? RETURNED(deep(n - 1)) + room[0] : 0;
}

KEPT static long jump(long n)
{
	jmp_buf here;
	long got = setjmp(here);
	if (got < n)
		longjmp(here, (int)got + 1);
	return got;
}

int main(int count, char **words)
{
	CHECK(count >= 2);
	leaps = words[1][0] == 'l';
	if (words[1][0] == 'a') {
		stack_t aside = {.ss_sp = malloc(1 << 17), .ss_size = 1 << 17};
		CHECK(sigaltstack(&aside, NULL) == 0);
	}
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_trap;
	action.sa_flags = SA_SIGINFO | (words[1][0] == 'a' ? SA_ONSTACK : 0);
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	/* Symbols are bound before the steps begin: a lookup takes thousands of instructions. */
	CHECK(tree(3) == 10 && jump(2) == 2);
	stepping = 1;
	__asm__ volatile("int3");
	CHECK(tree(12) == 91);
	CHECK(jump(3) == 3);
	CHECK(deep(70) == 70);
	if (count > 2) {
		void *library = dlopen(words[2], RTLD_NOW);
		CHECK(library);
		CHECK(dlclose(library) == 0);
	}
	stepping = 0;
	EFFECT();
	CHECK(tree(3) == 10);
	CHECK(steps > 300);
	puts("stepped through");
	printf("calls: %ld on_trap\ncalls: %ld in_handler\n", traps, steps * (leaps ? 3 : 2));
	return 0;
}
