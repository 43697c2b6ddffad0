/* siglongjmp out of handlers: from a fault in a deep recursion, from a handler on a stack of its own, from a timer at
 * any instruction. */
#define _GNU_SOURCE
#include "hard.h"
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

// calls: 51500 descend
// calls: 500 on_fault
// calls: 2000 on_timer
// calls: 1500 leaf

static sigjmp_buf back;
static volatile int ticks;

KEPT static int leaf(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static int descend(int left)
{
	if (left == 0)
		return *(volatile int *)8;
	return RETURNED(descend(left - 1)) + 1;
}

KEPT static void on_fault(int signal)
{
	leaf(signal);
	siglongjmp(back, 1);
}

static sigjmp_buf out;

KEPT static void on_timer(int signal)
{
	(void)signal;
	ticks++;
	siglongjmp(out, 1);
}

static volatile long busy;

KEPT static int busy_inner(int n)
{
	busy++;
	return n;
}

KEPT static int busy_outer(int n) { return busy_inner(n) + busy_inner(n); }

int main(void)
{
	static char alternate[64 << 10];
	stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
	CHECK(sigaltstack(&stack, NULL) == 0);
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_fault;
	for (volatile int i = 0; i < 500; i++) {
		action.sa_flags = i % 2 ? SA_ONSTACK : 0;
		CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
		if (sigsetjmp(back, 1) == 0) {
			descend(i % 2 ? 200 : 4);
			CHECK(!"past the fault");
		}
		CHECK(leaf(1) == 2 && leaf(2) == 3);
	}
	puts("faults");

	action.sa_handler = on_timer;
	action.sa_flags = 0;
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	while (ticks < 2000) {
		if (sigsetjmp(out, 1) == 0) {
			struct itimerval once = {{0, 0}, {0, 30 + ticks % 40}};
			setitimer(ITIMER_REAL, &once, NULL);
			for (;;)
				busy_outer(1);
		}
	}
	puts("timers");
	return 0;
}
