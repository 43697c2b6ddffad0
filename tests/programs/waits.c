/* One thread for each call that waits with a timeout whose rest the kernel does not keep: each waits several times, and
 * nothing comes. Prints the results of the calls. */
#define _GNU_SOURCE
#include "hard.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MILLISECONDS = 400, TIMES = 4 };

static const struct timespec length = { .tv_nsec = MILLISECONDS * 1000000L };
static int silent, ends[2], semaphore;
static sigset_t signals;

#define WAYS(WAY)                                                                                                    \
	WAY(epoll_wait(silent, &event, 1, MILLISECONDS))                                                             \
	WAY(epoll_pwait2(silent, &event, 1, &length, NULL))                                                          \
	WAY(sigtimedwait(&signals, NULL, &length))                                                                   \
	WAY(semtimedop(semaphore, &(struct sembuf){ .sem_op = -1 }, 1, &length))                                     \
	WAY(recv(ends[0], &byte, 1, 0))                                                                              \
	WAY(read(ends[0], &byte, 1))                                                                                 \
	WAY(preadv2(ends[0], &(struct iovec){ &byte, 1 }, 1, -1, 0))

#define NAME(call) #call,
static const char *const names[] = { WAYS(NAME) };
enum { COUNT = sizeof names / sizeof *names };
static char said[COUNT][100];

static void *wait_some_times(void *argument)
{
	long way = (long)argument, result = 0;
	struct epoll_event event;
	char byte;
	for (int i = 0; i < TIMES; i++) {
		switch (way) {
			enum { FIRST = __COUNTER__ + 1 };
#define CASE(call)                                                                                                   \
	case __COUNTER__ - FIRST:                                                                                    \
		result = call;                                                                                       \
		break;
			WAYS(CASE)
		}
		const char *why = result < 0 ? strerror(errno) : "nothing came";
		CHECK(!i || strstr(said[way], why));
		snprintf(said[way], sizeof said[way], "%ld: %s", result, why);
	}
	return NULL;
}

int main(void)
{
	struct timeval limit = { .tv_usec = MILLISECONDS * 1000 };
	silent = epoll_create1(0);
	semaphore = semget(IPC_PRIVATE, 1, 0600);
	sigaddset(&signals, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	pthread_t all[COUNT];
	for (long i = 0; i < COUNT; i++)
		CHECK(pthread_create(&all[i], NULL, wait_some_times, (void *)i) == 0);
	for (long i = 0; i < COUNT; i++) {
		CHECK(pthread_join(all[i], NULL) == 0);
		printf("%s: %s\n", names[i], said[i]);
	}
	CHECK(semctl(semaphore, 0, IPC_RMID) == 0);
	return 0;
}
