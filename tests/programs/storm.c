/* Timers interrupt a loop of traced calls at any instruction, and their handlers call traced functions too.
 * Arguments: the number of signals; the timer (real, virtual, profile); the number of looping threads. The handler sets
 * the real timer again, to between 1 and 23 microseconds; the others tick as often as the kernel lets them. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

static volatile long ticks;
static long wanted;
static int which;

KEPT static int inner(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static int outer(int n) { return inner(n) + inner(n + 1); }

KEPT static int in_handler(int n) { return n > 0 ? RETURNED(in_handler(n - 1)) + 1 : 0; }

KEPT static void on_tick(int signal)
{
	(void)signal;
	CHECK(in_handler(3) == 3);
	long now = __atomic_add_fetch(&ticks, 1, __ATOMIC_SEQ_CST);
	if (which == ITIMER_REAL && now < wanted) {
		struct itimerval once = {{0, 0}, {0, 1 + now % 23}};
		setitimer(ITIMER_REAL, &once, NULL);
	}
}

static void *loop(void *result)
{
	long rounds = 0;
	while (ticks < wanted) {
		for (int i = 0; i < 16; i++)
			CHECK(outer(i) == 2 * i + 3);
		rounds++;
	}
	*(long *)result = rounds;
	return NULL;
}

int main(int count, char **words)
{
	CHECK(count == 4);
	wanted = atol(words[1]);
	int virtual = strcmp(words[2], "virtual") == 0;
	which = strcmp(words[2], "real") == 0 ? ITIMER_REAL : virtual ? ITIMER_VIRTUAL : ITIMER_PROF;
	int signal = which == ITIMER_REAL ? SIGALRM : virtual ? SIGVTALRM : SIGPROF;
	int threads = atoi(words[3]);
	CHECK(threads <= 16);
	struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
	if (which != ITIMER_REAL)
		action.sa_flags |= SA_NODEFER;
	CHECK(sigaction(signal, &action, NULL) == 0);
	struct itimerval every = {{0, which == ITIMER_REAL ? 0 : 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
	CHECK(setitimer(which, &every, NULL) == 0);
	long rounds[16] = {0}, sum = 0;
	pthread_t all[16];
	for (int i = 1; i < threads; i++)
		CHECK(pthread_create(&all[i], NULL, loop, &rounds[i]) == 0);
	loop(&rounds[0]);
	for (int i = 1; i < threads; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
	CHECK(setitimer(which, &never, NULL) == 0);
	action.sa_handler = SIG_IGN;
	CHECK(sigaction(signal, &action, NULL) == 0);
	for (int i = 0; i < threads; i++)
		sum += rounds[i];
	puts("calm");
	printf("calls: %ld outer\ncalls: %ld inner\n", 16 * sum, 32 * sum);
	printf("calls: %ld on_tick\ncalls: %ld in_handler\n", ticks, 4 * ticks);
	return 0;
}
