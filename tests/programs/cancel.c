/* pthread_exit from deep in a recursion, cancellation in a system call, and asynchronous cancellation at any
 * instruction, all with cleanup handlers. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

// calls: 5050 exit_deep
// calls: 50 cleanup_exit
// calls: 50 waiting
// calls: 50 cleanup_wait
// calls: 50 spinning
// calls: 50 cleanup_spin
// calls: 1 main

static int exits, cancelled, spun;
static sem_t ready;
static int never[2];

KEPT static void cleanup_exit(void *word)
{
	CHECK(*(int *)word == 5);
	exits++;
}

KEPT static int exit_deep(int left)
{
	if (left == 0)
		pthread_exit((void *)42);
	return RETURNED(exit_deep(left - 1)) + 1;
}

static void *exit_body(void *unused)
{
	int word = 5;
	pthread_cleanup_push(cleanup_exit, &word);
	exit_deep(100);
	pthread_cleanup_pop(0);
	return unused;
}

KEPT static void cleanup_wait(void *unused)
{
	(void)unused;
	cancelled++;
}

KEPT static int waiting(void)
{
	char byte;
	sem_post(&ready);
	return (int)read(never[0], &byte, 1);
}

static void *wait_body(void *unused)
{
	pthread_cleanup_push(cleanup_wait, NULL);
	waiting();
	pthread_cleanup_pop(0);
	return unused;
}

KEPT static void cleanup_spin(void *unused)
{
	(void)unused;
	spun++;
}

KEPT static int spin_leaf(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static int spinning(void)
{
	sem_post(&ready);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (volatile int n = 0;; n = spin_leaf(n))
		;
	return 0;
}

static void *spin_body(void *unused)
{
	pthread_cleanup_push(cleanup_spin, NULL);
	spinning();
	pthread_cleanup_pop(0);
	return unused;
}

static void join(pthread_t thread, void *expected)
{
	void *result;
	CHECK(pthread_join(thread, &result) == 0 && result == expected);
}

int main(void)
{
	pthread_t thread;
	CHECK(pipe(never) == 0 && sem_init(&ready, 0, 0) == 0);
	for (int i = 0; i < 50; i++) {
		CHECK(pthread_create(&thread, NULL, exit_body, NULL) == 0);
		join(thread, (void *)42);
	}
	printf("exits %d\n", exits);
	for (int i = 0; i < 50; i++) {
		CHECK(pthread_create(&thread, NULL, wait_body, NULL) == 0);
		sem_wait(&ready);
		CHECK(pthread_cancel(thread) == 0);
		join(thread, PTHREAD_CANCELED);
	}
	printf("cancelled %d\n", cancelled);
	for (int i = 0; i < 50; i++) {
		CHECK(pthread_create(&thread, NULL, spin_body, NULL) == 0);
		sem_wait(&ready);
		usleep((useconds_t)(100 + 37 * i));
		CHECK(pthread_cancel(thread) == 0);
		join(thread, PTHREAD_CANCELED);
	}
	printf("cancelled while spinning %d\n", spun);
	fflush(stdout);
	/* The main thread leaves first; the process ends with its last thread, with status 0. */
	pthread_exit(NULL);
}
