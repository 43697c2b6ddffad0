/* Steps through itself by the trap flag until its input ends, and says whether all steps came. */
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
	struct pollfd input = {0, POLLIN, 0};
	steps++;
	if (steps % 100 == 0)
		over = poll(&input, 1, 0) == 1;
	*flags = over ? *flags & ~TRAP_FLAG : *flags | TRAP_FLAG;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
	volatile long sum = 0;
	sigaction(SIGTRAP, &action, 0);
	puts("ready");
	fflush(stdout);
	__asm__ volatile("int3");
	while (!over)
		sum++;
	puts(steps >= 100 ? "stepped" : "not stepped");
	return 0;
}
