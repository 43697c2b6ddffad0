/* Makes delays by commands, a line each, and reports them: "hold TIMES MS", of which the last takes so long; "wait MS"
 * for a lock; "block MS", signals; "request ID MS", which another thread answers; "sleep TIMES"; "catch MS", in a
 * handler. */
#include "hard.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t held;
static long asked, caught_ms;

static void pass(long ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	while (nanosleep(&time, &time) != 0)
		;
}

KEPT static void get(long request)
{
	EFFECT();
	asked = request;
}

KEPT static void put(long request)
{
	EFFECT();
	CHECK(request == asked);
}

KEPT static void inside_handler(void) { pass(caught_ms); }

KEPT static void handler(int signal)
{
	CHECK(signal == SIGUSR1);
	inside_handler();
	EFFECT();
}

static void *answer(void *unused)
{
	put(asked);
	return unused;
}

static void *hold(void *ms)
{
	pthread_mutex_lock(&mutex);
	pthread_barrier_wait(&held);
	/* Waits until the other thread waits: glibc keeps 2 there for a mutex that is taken and wanted. */
	while (__atomic_load_n(&mutex.__data.__lock, __ATOMIC_RELAXED) != 2)
		usleep(100);
	pass(*(long *)ms);
	pthread_mutex_unlock(&mutex);
	return 0;
}

static void obey(const char *word, long first, long second)
{
	pthread_t thread;
	sigset_t all, before;
	if (!strcmp(word, "hold")) {
		for (long i = 0; i < first; i++) {
			pthread_mutex_lock(&mutex);
			if (i == first - 1)
				pass(second);
			pthread_mutex_unlock(&mutex);
		}
	} else if (!strcmp(word, "wait")) {
		CHECK(pthread_create(&thread, 0, hold, &first) == 0);
		pthread_barrier_wait(&held);
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
		pthread_join(thread, 0);
	} else if (!strcmp(word, "block")) {
		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, &before);
		pass(first);
		pthread_sigmask(SIG_SETMASK, &before, 0);
	} else if (!strcmp(word, "request")) {
		get(first);
		pass(second);
		CHECK(pthread_create(&thread, 0, answer, 0) == 0);
		pthread_join(thread, 0);
	} else if (!strcmp(word, "sleep")) {
		for (long i = 0; i < first; i++)
			pass(1);
	} else if (!strcmp(word, "catch")) {
		caught_ms = first;
		pthread_mutex_lock(&mutex);
		raise(SIGUSR1);
		pthread_mutex_unlock(&mutex);
	}
}

int main(void)
{
	struct sigaction action = { .sa_handler = handler };
	char line[64], word[16];
	CHECK(sigaction(SIGUSR1, &action, 0) == 0);
	pthread_barrier_init(&held, 0, 2);
	puts("done 0");
	fflush(stdout);
	for (int number = 1; fgets(line, sizeof line, stdin); number++) {
		long first = 0, second = 0;
		if (sscanf(line, "%15s %ld %ld", word, &first, &second) < 1)
			break;
		obey(word, first, second);
		printf("done %d\n", number);
		fflush(stdout);
	}
	return 5;
}
