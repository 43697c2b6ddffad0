/* Waits for a line, and then runs as two processes of two threads each, each in a function of its own, until its input
 * ends. */
#include "hard.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

// calls: 1 parent_first
// calls: 1 parent_second
// calls: 1 child_first
// calls: 1 child_second

static int byte_comes(void)
{
	char byte;
	return read(0, &byte, 1) == 1;
}

KEPT static void *parent_first(void *unused)
{
	while (byte_comes())
		EFFECT();
	return unused;
}

KEPT static void *parent_second(void *unused)
{
	while (byte_comes())
		EFFECT();
	return unused;
}

KEPT static void *child_first(void *unused)
{
	while (byte_comes())
		EFFECT();
	return unused;
}

KEPT static void *child_second(void *unused)
{
	while (byte_comes())
		EFFECT();
	return unused;
}

int main(void)
{
	CHECK(byte_comes());
	pid_t child = fork();
	CHECK(child >= 0);
	pthread_t second;
	CHECK(pthread_create(&second, NULL, child == 0 ? child_second : parent_second, NULL) == 0);
	child == 0 ? child_first(NULL) : parent_first(NULL);
	CHECK(pthread_join(second, NULL) == 0);
	if (child == 0)
		return 0;
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
