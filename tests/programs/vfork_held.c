/* A thread waits for a child of vfork, until a line of input comes, while another one works. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

KEPT static int leaf(int value)
{
	EFFECT();
	return value + 1;
}

static void *hold(void *unused)
{
	char line;
	int status;
	pid_t child = vfork();
	if (child == 0)
		_exit(read(0, &line, 1) != 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	puts("over");
	fflush(stdout);
	return unused;
}

static void *work(void *unused)
{
	for (int i = 0;; i++) {
		CHECK(leaf(i) == i + 1);
		usleep(1000);
	}
	return unused;
}

int main(void)
{
	pthread_t thread, worker;
	char line;
	CHECK(pthread_create(&worker, 0, work, 0) == 0);
	puts("ready");
	fflush(stdout);
	CHECK(pthread_create(&thread, 0, hold, 0) == 0 && pthread_join(thread, 0) == 0);
	CHECK(read(0, &line, 1) == 0);
	return 5;
}
