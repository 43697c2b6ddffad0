/* Threads that block every signal, from their start to the program's end. */
#include "hard.h"
#include <pthread.h>
#include <signal.h>

// calls: 50000 work

#define THREADS 5
#define CALLS 10000

static long sum;

KEPT static void work(void) { __atomic_add_fetch(&sum, 1, __ATOMIC_RELAXED); }

static void *all_work(void *unused)
{
	sigset_t blocked;
	for (int i = 0; i < CALLS; i++)
		work();
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0);
	for (int signal = 1; signal < 32; signal++)
		CHECK(signal == SIGKILL || signal == SIGSTOP || sigismember(&blocked, signal));
	return unused;
}

int main(void)
{
	sigset_t every;
	pthread_t threads[THREADS - 1];
	sigfillset(&every);
	CHECK(sigprocmask(SIG_SETMASK, &every, NULL) == 0);
	for (int i = 0; i < THREADS - 1; i++)
		CHECK(pthread_create(&threads[i], NULL, all_work, NULL) == 0);
	all_work(NULL);
	for (int i = 0; i < THREADS - 1; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	printf("%ld\n", sum);
	return 0;
}
