/* Detached threads, threads that make threads, thread-local storage with destructors. */
#include "hard.h"
#include <pthread.h>
#include <semaphore.h>

// calls: 100 parent
// calls: 300 child
// calls: 400 at_thread_end

static pthread_key_t key;
static sem_t finished;
static __thread int own = 7;

KEPT static void at_thread_end(void *value)
{
	CHECK(*(int *)value == own);
	sem_post(&finished);
}

KEPT static void *child(void *unused)
{
	own += 1;
	pthread_setspecific(key, &own);
	return unused;
}

KEPT static void *parent(void *unused)
{
	for (int i = 0; i < 3; i++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, child, NULL) == 0);
		pthread_detach(thread);
	}
	pthread_setspecific(key, &own);
	return unused;
}

int main(void)
{
	sem_init(&finished, 0, 0);
	pthread_key_create(&key, at_thread_end);
	for (int i = 0; i < 100; i++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, parent, NULL) == 0);
		pthread_detach(thread);
		for (int j = 0; j < 4; j++)
			while (sem_wait(&finished))
				;
	}
	puts("all ended");
	return 0;
}
