/* Functions that are called a known number of times, under all circumstances that make counting hard, at a line on
 * standard input:
 * plain N    leaf(), N times
 * begin N    the same in each of four threads
 * end        waits until they end
 * fork N     the same in a forked child, and in its parent meanwhile
 * signals N  the same, while a timer's handler calls it, too
 * deep N     deep(), N levels, over many pages of the stack
 * work N     work(), N times, which takes far longer than counting a call and far less than recording one
 * last N     lasting(), N times, for 1 to 9 us by the clock, and prints "took T": nanoseconds of all these calls
 * brief N    brief(), N times, for some 150 to 300 ns, and prints "took T": of all these calls together, on the processor
 * again      executes the same program
 * Prints "ready", then "made M" and "done" for each line: M calls of leaf(), or of work(), in all. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4

static volatile sig_atomic_t by_handler;

KEPT static void leaf(void)
{
	EFFECT();
}

KEPT static void deep(unsigned long left)
{
	EFFECT();
	if (left > 1)
		deep(left - 1);
	EFFECT();
}

static void call(unsigned long times)
{
	for (unsigned long i = 0; i < times; i++)
		leaf();
}

KEPT static void work(void)
{
	unsigned long number = 1;
	for (int i = 0; i < 12; i++) {
		number *= 2654435761;
		__asm__ volatile("" : "+r"(number));
	}
}

KEPT static void brief(void)
{
	unsigned long number = 1;
	for (int i = 0; i < 160; i++) {
		number *= 2654435761;
		__asm__ volatile("" : "+r"(number));
	}
}

static unsigned long now(clockid_t clock)
{
	struct timespec time;
	CHECK(clock_gettime(clock, &time) == 0);
	return (unsigned long)time.tv_sec * 1000000000 + (unsigned long)time.tv_nsec;
}

/* Returns how long it took. */
KEPT static unsigned long lasting(unsigned long call)
{
	unsigned long begin = now(CLOCK_MONOTONIC), end, least = call * 2654435761 % 8000 + 1000;
	while ((end = now(CLOCK_MONOTONIC)) - begin < least)
		EFFECT();
	return end - begin;
}

static void *thread(void *times)
{
	call((unsigned long)times);
	return NULL;
}

static void handler(int signal)
{
	(void)signal;
	for (int i = 0; i < 10; i++)
		leaf();
	by_handler += 10;
}

int main(int count, char **arguments)
{
	char line[64], what[16];
	unsigned long times;
	pthread_t threads[THREADS];
	setvbuf(stdout, NULL, _IONBF, 0);
	puts(count > 1 ? "made 0\ndone" : "ready");
	while (fgets(line, sizeof line, stdin)) {
		unsigned long made = 0;
		times = 0;
		CHECK(sscanf(line, "%15s %lu", what, &times) >= 1);
		if (!strcmp(what, "plain")) {
			call(times);
			made = times;
		} else if (!strcmp(what, "begin")) {
			for (int i = 0; i < THREADS; i++)
				CHECK(pthread_create(&threads[i], NULL, thread, (void *)times) == 0);
			made = THREADS * times;
		} else if (!strcmp(what, "end")) {
			for (int i = 0; i < THREADS; i++)
				CHECK(pthread_join(threads[i], NULL) == 0);
		} else if (!strcmp(what, "fork")) {
			pid_t child = fork();
			call(times);
			if (child == 0)
				_exit(0);
			CHECK(waitpid(child, NULL, 0) == child);
			made = 2 * times;
		} else if (!strcmp(what, "signals")) {
			struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { 0 };
			by_handler = 0;
			CHECK(signal(SIGALRM, handler) != SIG_ERR && setitimer(ITIMER_REAL, &often, NULL) == 0);
			call(times);
			CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && signal(SIGALRM, SIG_IGN) != SIG_ERR);
			made = times + (unsigned long)by_handler;
		} else if (!strcmp(what, "deep")) {
			deep(times);
		} else if (!strcmp(what, "last")) {
			unsigned long took = 0;
			for (unsigned long i = 0; i < times; i++)
				took += lasting(i);
			printf("took %lu\n", took);
		} else if (!strcmp(what, "brief")) {
			unsigned long begin = now(CLOCK_THREAD_CPUTIME_ID);
			for (unsigned long i = 0; i < times; i++)
				brief();
			printf("took %lu\n", now(CLOCK_THREAD_CPUTIME_ID) - begin);
		} else if (!strcmp(what, "work")) {
			for (unsigned long i = 0; i < times; i++)
				work();
			made = times;
		} else {
			CHECK(!strcmp(what, "again"));
			execl("/proc/self/exe", arguments[0], what, NULL);
		}
		printf("made %lu\ndone\n", made);
	}
	return 5;
}
