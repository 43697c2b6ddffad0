/* A profiler in the program itself: a signal handler on a stack of its own unwinds the interrupted stack. It must always
 * come to main. */
#include "hard.h"
#include <signal.h>
#include <stdint.h>
#include <sys/time.h>
#include <unwind.h>

#ifdef HOLD
enum { ROUNDS = 300000 };
#else
enum { ROUNDS = 2000 };
#endif

enum { MOST_FRAMES = 200, MICROSECONDS = 2000 };

static char stack[1 << 16];
static volatile long samples;
static volatile long without_main;

int main(void);

struct walk {
	int frames;
	int came_to_main;
};

KEPT static _Unwind_Reason_Code look(struct _Unwind_Context *context, void *data)
{
	struct walk *walk = data;
	walk->came_to_main |= _Unwind_GetRegionStart(context) == (uintptr_t)main;
	return ++walk->frames == MOST_FRAMES ? _URC_END_OF_STACK : _URC_NO_REASON;
}

KEPT static int comes_to_main(void)
{
	struct walk walk = { 0 };
	_Unwind_Backtrace(look, &walk);
	return walk.came_to_main;
}

static void sample(int number)
{
	(void)number;
	samples++;
	without_main += !comes_to_main();
}

KEPT static int leaf(int value)
{
	EFFECT();
	return value + 1;
}

KEPT static int nested(int levels)
{
	if (levels)
		return RETURNED(nested(levels - 1)) + leaf(-1);
	return comes_to_main();
}

int main(void)
{
	stack_t other = { .ss_sp = stack, .ss_size = sizeof stack };
	struct sigaction action = { .sa_handler = sample, .sa_flags = SA_ONSTACK | SA_RESTART };
	struct itimerval interval = { { 0, MICROSECONDS }, { 0, MICROSECONDS } };
	CHECK(sigaltstack(&other, 0) == 0 && sigaction(SIGPROF, &action, 0) == 0);
	/* The unwinder allocates memory when it is first used. */
	CHECK(comes_to_main());
	CHECK(setitimer(ITIMER_PROF, &interval, 0) == 0);
	for (int round = 0; round < ROUNDS; round++)
		CHECK(nested(12) == 1);
	interval = (struct itimerval){ { 0, 0 }, { 0, 0 } };
	CHECK(setitimer(ITIMER_PROF, &interval, 0) == 0);
	printf("%ld samples have not come to main\n", without_main);
	return 0;
}
