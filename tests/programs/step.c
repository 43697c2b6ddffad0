/* Calls are single-stepped by the trap flag. At every instruction of them, in any code, the handler
 *     walk: asks for a backtrace, which must be complete
 *     slow: does the same, where every call takes the tracer's slow path
 *     call: calls traced functions
 *     jump: leaves by siglongjmp
 *     leap: does the same, at every seventh instruction of the tracer's slow path
 * The handler acts every SPACING steps, in SPACING rounds that begin at different steps; a jump ends its round, so
 * there are as many rounds as steps. */
#define _GNU_SOURCE
#include "hard.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100
#define SPACING 61

static volatile int stepping, level;
static volatile long step, acts;
static long first;
static const char *mode;
static int jumping;
static long called;
static sigjmp_buf out;

/* The fewest calls that the trace must hold: those of begun functions. A function left earlier may be recorded. */
static volatile long begun_leaf, begun_middle, begun_tail, begun_drive;

KEPT static int calm(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static long in_handler(long n) { return n > 0 ? RETURNED(in_handler(n - 1)) + 1 : 0; }

KEPT long leaf(long a, long b, long c, long d, long e, long f, long g, long h)
{
	begun_leaf++;
	level = 3;
	long sum = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
	EFFECT();
	level = 2;
	return sum;
}

/* Has a frame pointer. */
KEPT long middle(long n)
{
	begun_middle++;
	volatile char room[n * 16];
	room[0] = 1;
	level = 2;
	long sum = RETURNED(leaf(n, 1, 2, 3, 4, 5, 6, room[0]));
	sum += RETURNED(leaf(1, n, 2, 3, 4, 5, room[0], 7));
	level = 1;
	return sum;
}

KEPT long tail(long n)
{
	begun_tail++;
	level = 1;
	return middle(n + 1);
}

KEPT long outer(long n)
{
	level = 1;
	long sum = RETURNED(middle(n)) + RETURNED(tail(n));
	level = 0;
	return sum;
}

KEPT long drive(long n)
{
	begun_drive++;
	long sum = RETURNED(jumping ? tail(n) : outer(n));
	stepping = 0;
	EFFECT();
	return sum;
}

int main(int count, char **words);

/* The depth of an address's function in the calls; a function that a tail call left has no frame. */
static int rank(const void *address)
{
	Dl_info found;
	if (!dladdr(address, &found) || !found.dli_saddr)
		return 0;
	const void *const functions[] = {main, drive, outer, middle, leaf};
	for (int i = 0; i < 5; i++)
		if (found.dli_saddr == functions[i])
			return i + 1;
	return found.dli_saddr == (void *)tail ? 4 : 0;
}

static void walk(const void *interrupted)
{
	void *frames[64];
	int count = backtrace(frames, 64);
	CHECK(count > 4 && count < 64);
	int innermost = 0, expected = 0;
	for (int i = count; i-- > 0;) {
		int found = rank((const char *)frames[i] - (frames[i] != interrupted));
		if (!found)
			continue;
		/* From the outermost frame inwards, none is missing, and none occurs twice. */
		CHECK(found == ++expected);
		innermost = found;
	}
	int known = rank(interrupted);
	CHECK(innermost >= 1 && (!known || known == innermost));
	/* The tracer's copy of a function's first instructions does not belong to the function. */
	CHECK(!level || innermost >= level + 2 - (known ? 0 : 1));
}

static void on_trap(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	if (information->si_code != TRAP_TRACE) {
		registers[REG_EFL] |= TRAP_FLAG;
		return;
	}
	if (!stepping) {
		registers[REG_EFL] &= ~TRAP_FLAG;
		return;
	}
	step++;
	if (jumping ? step != first : (step - first) % SPACING != 0)
		return;
	acts++;
	const void *interrupted = (const void *)registers[REG_RIP];
	if (*mode == 'w' || *mode == 's') {
		walk(interrupted);
	} else if (*mode == 'c') {
		CHECK(in_handler(3) == 3);
		called += 4;
	} else {
		stepping = 0;
		siglongjmp(out, 1);
	}
}

static sigjmp_buf here;

/* Keeps the next event of this thread off the fast path. */
KEPT static void disturb(void)
{
	if (sigsetjmp(here, 0) == 0)
		siglongjmp(here, 1);
}

int main(int count, char **words)
{
	CHECK(count == 2);
	mode = words[1];
	jumping = *mode == 'j' || *mode == 'l';
	void *frames[4];
	CHECK(backtrace(frames, 4) > 1);
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_trap;
	action.sa_flags = SA_SIGINFO;
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	long right = jumping ? tail(3) : outer(3), rounds = 0, jumps = 0;
	const long most = *mode == 'j' ? 640 : *mode == 'l' ? 250 : SPACING;
	for (volatile long round = 0; round < most; round++) {
		first = *mode == 'l' ? 7 * round : round;
		step = level = 0;
		if (*mode == 's' || *mode == 'l')
			disturb();
		if (sigsetjmp(out, 1) == 0) {
			stepping = 1;
			__asm__ volatile("int3");
			CHECK(drive(3) == right);
			rounds++;
		} else {
			jumps++;
		}
		CHECK(calm(1) == 2);
	}
	CHECK(acts > 0 && rounds + jumps == most);
	CHECK(!jumping || jumps > 5);
	puts("walked");
	printf("calls: %ld calm\ncalls: %ld in_handler\n", most, called);
	if (!jumping) {
		printf("calls: %ld drive\ncalls: %ld outer\ncalls: %ld tail\n", most, most + 1, most + 1);
		printf("calls: %ld middle\ncalls: %ld leaf\n", 2 * most + 2, 4 * most + 4);
	} else {
		printf("between: %ld %ld leaf\n", begun_leaf, begun_leaf + jumps);
		printf("between: %ld %ld middle\n", begun_middle, begun_middle + jumps);
		printf("between: %ld %ld tail\n", begun_tail, begun_tail + jumps);
		printf("between: %ld %ld drive\n", begun_drive, begun_drive + jumps);
	}
	return 0;
}
