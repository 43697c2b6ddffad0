/* fork by the library and by a raw system call, children of children, a fork in a process with threads, and many
 * children that live at once. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// calls: 1 main
// calls: 73 in_child
// calls: 730 leaf
// calls: 20 generation
// calls: 1 other_thread
// calls: 30 in_parent

static volatile int stop;

KEPT static int leaf(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static int in_child(int code)
{
	int n = 0;
	for (int i = 0; i < 10; i++)
		n = leaf(n);
	return n + code;
}

KEPT static void in_parent(pid_t child, int code)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
}

/* Each generation is the child of the one before it. */
KEPT static int generation(int left)
{
	if (left == 1)
		return in_child(0);
	pid_t child = fork();
	if (child == 0)
		_exit(generation(left - 1));
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

KEPT static void *other_thread(void *unused)
{
	while (!stop)
		usleep(1000);
	return unused;
}

static pid_t raw_fork(int how)
{
	if (how == 0)
		return (pid_t)syscall(SYS_fork);
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();
		if (child == 0)
			exit(in_child(i));
		in_parent(child, 10 + i);
	}
	puts("fork");
	for (int i = 0; i < 10; i++) {
		pid_t child = raw_fork(i % 2);
		if (child == 0)
			_exit(in_child(i));
		in_parent(child, 10 + i);
	}
	puts("raw system call");
	CHECK(generation(20) == 10);
	puts("twenty generations");

	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();
		if (child == 0)
			exit(in_child(i));
		in_parent(child, 10 + i);
	}
	stop = 1;
	pthread_join(thread, NULL);
	puts("beside a thread");

	pid_t children[42];
	for (int i = 0; i < 42; i++) {
		children[i] = fork();
		if (children[i] == 0)
			_exit(in_child(i));
	}
	for (int i = 0; i < 42; i++) {
		int status;
		CHECK(waitpid(children[i], &status, 0) == children[i] && WEXITSTATUS(status) == 10 + i);
	}
	puts("42 at once");
	return 0;
}
