/* Steps through itself by the trap flag until its input ends, and says whether it still does then. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100

static volatile int over;
static volatile long steps;

static void on_trap(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	(void)information;
	greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
	steps++;
	*flags = over ? *flags & ~TRAP_FLAG : *flags | TRAP_FLAG;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
	struct pollfd input = {0, POLLIN, 0};
	volatile long sum = 0;
	sigaction(SIGTRAP, &action, 0);
	puts("ready");
	fflush(stdout);
	__asm__ volatile("int3");
	do
		for (int i = 0; i < 100; i++)
			sum++;
	while (poll(&input, 1, 0) != 1);
	long before = steps;
	sum++;
	over = 1;
	puts(steps > before ? "stepped" : "not stepped");
	return 0;
}
