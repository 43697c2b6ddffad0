/* A profiler in the program itself, whose handler begins at the frame pointer that it has interrupted: it must point into
 * the stack, above the stack pointer. Compiled with frame pointers. */
#define _GNU_SOURCE
#include "hard.h"
#include <signal.h>
#include <stdint.h>
#include <sys/time.h>
#include <ucontext.h>

#ifdef HOLD
enum { ROUNDS = 3000 };
#else
enum { ROUNDS = 300 };
#endif

enum { MICROSECONDS = 1000, RED_ZONE = 128 };

static uintptr_t highest;
static volatile long elsewhere;

static void sample(int number, siginfo_t *information, void *context)
{
	(void)number, (void)information;
	const greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	uintptr_t frame = (uintptr_t)registers[REG_RBP];
	elsewhere += frame < (uintptr_t)registers[REG_RSP] - RED_ZONE || frame > highest;
}

KEPT static long fibonacci(long n)
{
	return n < 2 ? n : RETURNED(fibonacci(n - 1)) + fibonacci(n - 2);
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = sample, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct itimerval interval = { { 0, MICROSECONDS }, { 0, MICROSECONDS } };
	highest = (uintptr_t)__builtin_frame_address(0);
	CHECK(sigaction(SIGPROF, &action, 0) == 0);
	CHECK(setitimer(ITIMER_PROF, &interval, 0) == 0);
	for (int round = 0; round < ROUNDS; round++)
		CHECK(fibonacci(16) == 987);
	interval = (struct itimerval){ { 0, 0 }, { 0, 0 } };
	CHECK(setitimer(ITIMER_PROF, &interval, 0) == 0);
	printf("%ld samples have found no frame\n", elsewhere);
	return 0;
}
