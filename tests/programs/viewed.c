/* Threads that take turns: a subject for viewers of processors, wake-ups, locks, requests and values. */

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "../../include/nopal.h"

#define WORKERS 3
#define ROUNDS 40

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t there = PTHREAD_COND_INITIALIZER;
static int jobs;

__attribute__((noinline)) static void serve(int number)
{
	NOPAL_MARK(begun, "id=%d", number);
	pthread_mutex_lock(&lock);
	usleep((unsigned)(number % 5) * 100);
	pthread_mutex_unlock(&lock);
	NOPAL_MARK(served, "id=%d load=%d", number, number % 7 * 10 - 20);
}

static void *work(void *first)
{
	for (int round = 0; round < ROUNDS; round++) {
		pthread_mutex_lock(&lock);
		while (!jobs)
			pthread_cond_wait(&there, &lock);
		jobs--;
		pthread_mutex_unlock(&lock);
		serve(*(int *)first + round);
	}
	return 0;
}

int main(void)
{
	pthread_t workers[WORKERS];
	int first[WORKERS];

	for (int at = 0; at < WORKERS; at++) {
		first[at] = at * 1000;
		pthread_create(&workers[at], 0, work, &first[at]);
	}
	for (int job = 0; job < WORKERS * ROUNDS; job++) {
		pthread_mutex_lock(&lock);
		jobs++;
		pthread_cond_signal(&there);
		pthread_mutex_unlock(&lock);
		usleep(200);
	}
	for (int at = 0; at < WORKERS; at++)
		pthread_join(workers[at], 0);
	puts("done");
	return 0;
}
