// Fifty threads in system calls of many kinds. Each says whether its call ever failed with EINTR, or came back at all
// without a reason, when it is told to stop: a byte on standard input.
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/aio_abi.h>

static atomic_int complaints;
static atomic_ulong spins;
static int word;

static void never(const char *what, long result) {
	printf("%s returned %ld: %s\n", what, result, strerror(errno));
	atomic_fetch_add(&complaints, 1);
}

static int silent_pipe(void) {
	int ends[2];
	if (pipe(ends))
		perror("pipe");
	return ends[0];
}

static int epoll_of_nothing(void) {
	int set = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};
	epoll_ctl(set, EPOLL_CTL_ADD, silent_pipe(), &event);
	return set;
}

static void *sleeper(void *argument) {
	long kind = (long)argument;
	struct epoll_event event;
	struct pollfd one = {.fd = silent_pipe(), .events = POLLIN};
	struct timespec long_time = {1000, 0};
	struct timeval limit = {1000, 0};
	struct sembuf take = {0, -1, 0};
	sigset_t signals;
	char byte;
	int pair[2];
	aio_context_t context = 0;
	struct io_event done;
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	for (;;) {
		errno = 0;
		switch (kind % 14) {
		case 0: never("poll", poll(&one, 1, 1000000)); break;
		case 1: never("epoll_wait", epoll_wait(epoll_of_nothing(), &event, 1, -1)); break;
		case 2: never("epoll_pwait", epoll_pwait(epoll_of_nothing(), &event, 1, 1000000, &signals)); break;
		case 3: never("futex", syscall(SYS_futex, &word, FUTEX_WAIT, 0, &long_time, 0, 0)); break;
		case 4: never("read of a pipe", read(one.fd, &byte, 1)); break;
		case 5: never("sigtimedwait", sigtimedwait(&signals, 0, &long_time)); break;
		case 6: never("nanosleep", nanosleep(&long_time, 0)); break;
		case 7: atomic_fetch_add(&spins, 1); break;
		case 8: {
			int set = semget(IPC_PRIVATE, 1, 0600);
			long result;
			// To remove it while a thread waits for it would wake the thread: it is removed at the end.
			extern void remember(int);
			remember(set);
			result = semop(set, &take, 1);
			if (errno != EIDRM)
				never("semop", result);
			return 0;
		}
		case 9:
			socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
			setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
			never("recv with timeout", recv(pair[0], &byte, 1, 0));
			break;
		case 10:
			syscall(SYS_io_setup, 1, &context);
			never("io_getevents", syscall(SYS_io_getevents, context, 1, 1, &done, 0));
			break;
		case 11: never("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, 0)); break;
		case 12: never("ppoll", ppoll(&one, 1, &long_time, &signals)); break;
		case 13: never("read of an eventfd", eventfd_read(eventfd(0, 0), &(eventfd_t){0})); break;
		}
	}
}

static int sets[8];
static atomic_int set_count;

void remember(int set) {
	sets[atomic_fetch_add(&set_count, 1) % 8] = set;
}

int main(void) {
	sigset_t signals;
	char byte;
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &signals, 0);
	for (long kind = 0; kind < 49; kind++) {
		pthread_t thread;
		pthread_create(&thread, 0, sleeper, (void *)kind);
	}
	usleep(50000);
	puts("ready");
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		never("read of standard input", 0);
	unsigned long before = spins;
	for (int i = 0; i < 20000 && spins == before; i++)
		usleep(1000);
	for (int i = 0; i < set_count; i++)
		semctl(sets[i], 0, IPC_RMID);
	printf("%d complaints, %s\n", complaints, spins > before ? "spinning" : "hanging");
	fflush(stdout);
	_exit(0);
}
