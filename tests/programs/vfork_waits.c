/* Makes long waits for children of vfork, executing or not, while another thread works. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 3 };

static volatile int over;

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

static void *work(void *unused)
{
	while (!over) {
		for (long i = 0; i < 1000; i++)
			CHECK(leaf(i) == i + 1);
		usleep(1000);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;
	int sum = 0, status;
	CHECK(pthread_create(&thread, 0, work, 0) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		pid_t child = vfork();
		if (child == 0) {
			execl("/bin/sleep", "sleep", "0.3", (char *)0);
			_exit(1);
		}
		CHECK(waitpid(child, &status, 0) == child);
		sum += status;
		child = vfork();
		if (child == 0) {
			usleep(300000);
			_exit(3);
		}
		CHECK(waitpid(child, &status, 0) == child);
		sum += status;
	}
	over = 1;
	CHECK(pthread_join(thread, 0) == 0);
	printf("%d\n", sum);
	return 13;
}
