/* A program with traps, faults and a profiler of its own. */
#define _GNU_SOURCE
#include "hard.h"
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

// calls: 500 trap
// calls: 500 on_trap
// calls: 500 touch
// calls: 500 on_fault

static volatile long traps, faults, ticks;
static char *page;

KEPT static void on_trap(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)information, (void)context;
	traps++;
}

KEPT static void on_fault(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)context;
	CHECK(information->si_addr == page);
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
	faults++;
}

static void on_tick(int signal)
{
	(void)signal;
	ticks++;
}

KEPT static void trap(void)
{
	__asm__ volatile("int3");
	EFFECT();
}

KEPT static void touch(void)
{
	*(volatile char *)page = 1;
	EFFECT();
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	CHECK(sigaction(signal, &action, NULL) == 0);
}

int main(void)
{
	handle(SIGTRAP, on_trap);
	handle(SIGSEGV, on_fault);
	signal(SIGPROF, on_tick);
	struct itimerval often = {{0, 1000}, {0, 1000}};
	setitimer(ITIMER_PROF, &often, NULL);
	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 500; i++) {
		trap();
		touch();
		mprotect(page, 4096, PROT_NONE);
	}
	while (ticks < 3)
		EFFECT();
	printf("%ld traps, %ld faults\n", traps, faults);
	return 0;
}
