/* A thread with its own descriptors: numbers that are free in it belong to files with contents in the other threads. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FILES = 8, ROUNDS = 1000 };

static const char contents[] = "contents";
static int files[FILES];
static pthread_t thread;
static sem_t apart;
static volatile int over;

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

static void *other(void *data)
{
	CHECK(unshare(CLONE_FILES) == 0);
	for (int i = 0; i < FILES; i++)
		CHECK(close(files[i]) == 0);
	CHECK(sem_post(&apart) == 0);
	while (!over) {
		int copy = dup(1);
		CHECK(copy == files[0] && close(copy) == 0);
		leaf(0);
		usleep(1000);
	}
	return data;
}

/* Runs before HOLD makes the program wait for a tracer. */
static __attribute__((constructor(101))) void start(void)
{
	for (int i = 0; i < FILES; i++) {
		files[i] = memfd_create("file", 0);
		CHECK(write(files[i], contents, sizeof contents) == sizeof contents);
	}
	CHECK(sem_init(&apart, 0, 0) == 0);
	CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
	CHECK(sem_wait(&apart) == 0);
}

int main(void)
{
	for (long i = 0; i < ROUNDS; i++) {
		leaf(i);
		usleep(1000);
	}
	over = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	for (int i = 0; i < FILES; i++) {
		char found[2 * sizeof contents];
		CHECK(pread(files[i], found, sizeof found, 0) == sizeof contents);
		CHECK(memcmp(found, contents, sizeof contents) == 0);
	}
	puts("as they were");
}
