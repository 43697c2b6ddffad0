// Threads whose children end all the time, which they are told by a signal that is ignored, and threads that wait with
// timeouts, with CROWD more of them and for longer. With VFORK, parents wait for their children in the kernel first. Says,
// when it is told to end, how many of the waits failed with EINTR.
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined CROWD
enum { PARENTS = 3, CHILDREN = 4, WAITERS = 200, MILLISECONDS = 50 };
#elif defined VFORK
enum { PARENTS = 3, CHILDREN = 1, WAITERS = 60, MILLISECONDS = 5 };
#define fork vfork
#else
enum { PARENTS = 3, CHILDREN = 1, WAITERS = 8, MILLISECONDS = 1 };
#endif
static atomic_int failed, begun;

static void *have_children(void *unused) {
	(void)unused;
	atomic_fetch_add(&begun, 1);
	for (;;) {
		pid_t children[CHILDREN];
		for (int i = 0; i < CHILDREN; i++)
			if ((children[i] = fork()) == 0)
				_exit(0);
		for (int i = 0; i < CHILDREN; i++)
			waitpid(children[i], 0, 0);
	}
	return 0;
}

static void *wait_over_and_over(void *unused) {
	(void)unused;
	int set = epoll_create1(0);
	struct epoll_event event;
	atomic_fetch_add(&begun, 1);
	for (;;)
		if (epoll_wait(set, &event, 1, MILLISECONDS) == -1 && errno == EINTR)
			atomic_fetch_add(&failed, 1);
	return 0;
}

int main(void) {
	char byte;
	pthread_t thread;
	for (int i = 0; i < PARENTS; i++)
		pthread_create(&thread, 0, have_children, 0);
	for (int i = 0; i < WAITERS; i++)
		pthread_create(&thread, 0, wait_over_and_over, 0);
	while (begun < PARENTS + WAITERS)
		usleep(1000);
	puts("ready");
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 1;
	printf("%d failed\n", failed);
	fflush(stdout);
	_exit(0);
}
