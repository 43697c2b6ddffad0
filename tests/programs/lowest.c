/* A thread that closes descriptors and opens others, which must get the lowest free numbers, and that forks children,
 * which must have no others, while other threads do other work. */
#include "hard.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 150000, CHILDREN = 300 };

static volatile int over;

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

static void *other(void *data)
{
	while (!over) {
		leaf(0);
		usleep(1000);
	}
	return data;
}

static void child(void)
{
	for (int file = 3; file < 10; file++)
		CHECK(fcntl(file, F_GETFD) == -1);
	_exit(0);
}

int main(void)
{
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(threads + i, 0, other, 0) == 0);
	for (long i = 0; i < ROUNDS; i++) {
		close(0);
		CHECK(open("/dev/null", O_RDONLY) == 0);
		int copy = dup(1);
		CHECK(copy == 3 && close(copy) == 0);
		leaf(i);
		if (i % (ROUNDS / CHILDREN) == 0) {
			int status;
			pid_t id = fork();
			if (id == 0)
				child();
			CHECK(waitpid(id, &status, 0) == id && status == 0);
		}
	}
	over = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], 0);
	puts("lowest");
}
