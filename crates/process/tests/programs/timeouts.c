// A thread for each system call that waits with a timeout, over and over. Says, when it is told to end, how often one
// failed with EINTR, returned too early or something else than at first, and which never returned: 5 s after it is told
// so, or with IMPATIENT at once, if a stop can end it in time. LENGTH is that of the waits.
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef LENGTH
#define LENGTH 2000000 /* nanoseconds */
#endif
#ifdef IMPATIENT
enum { PATIENCE = 0, LIMIT = LENGTH / 1000 };
#else
// Timeouts of sockets are counted in ticks of up to 10 ms, the first of which may be short.
enum { PATIENCE = 5000, LIMIT = 6 * LENGTH / 1000 };
#endif
static const struct timespec length = {0, LENGTH};
static atomic_int complaints, begun;
static int semaphore;

static long now(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

static struct timespec soon(clockid_t clock) {
	struct timespec time;
	clock_gettime(clock, &time);
	time.tv_nsec += LENGTH;
	time.tv_sec += time.tv_nsec / 1000000000;
	time.tv_nsec %= 1000000000;
	return time;
}

struct place {
	int set, pair[2], silent, semaphore, locked, word, listening, file, ring;
	struct sockaddr_un address;
	struct sockaddr_in internet;
	aio_context_t context;
	sigset_t signals;
	mqd_t queue;
};

#define WAYS(WAY)                                                                                                      \
	WAY("poll", poll(&(struct pollfd){.fd = p->silent, .events = POLLIN}, 1, LENGTH / 1000000))                                   \
	WAY("ppoll", syscall(SYS_ppoll, 0, 0, &(struct timespec){0, LENGTH}, 0, 8))                                    \
	WAY("ppoll for a constant time", syscall(SYS_ppoll, 0, 0, &length, 0, 8))                                      \
	WAY("select", select(0, 0, 0, 0, &(struct timeval){0, LENGTH / 1000}))                                         \
	WAY("pselect for a constant time", syscall(SYS_pselect6, 0, 0, 0, 0, &length, 0))                              \
	WAY("epoll_wait", epoll_wait(p->set, &event, 1, LENGTH / 1000000))                                                            \
	WAY("epoll_pwait", epoll_pwait(p->set, &event, 1, LENGTH / 1000000, &p->signals))                                             \
	WAY("epoll_pwait2", syscall(SYS_epoll_pwait2, p->set, &event, 1, &length, 0, 8))                               \
	WAY("nanosleep", nanosleep(&length, &(struct timespec){0}))                                                    \
	WAY("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, 0, &length, 0))                                        \
	WAY("clock_nanosleep until", clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, 0))                        \
	WAY("futex", syscall(SYS_futex, &p->word, FUTEX_WAIT, 0, &length, 0, 0))                                       \
	WAY("futex until", syscall(SYS_futex, &p->word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &until, 0, -1))   \
	WAY("futex with priority", syscall(SYS_futex, &p->locked, FUTEX_LOCK_PI, 0, &until, 0, 0))                     \
	WAY("sigtimedwait", sigtimedwait(&p->signals, 0, &length))                                                     \
	WAY("semtimedop", semtimedop(p->semaphore, &(struct sembuf){0, -1, 0}, 1, &length))                            \
	WAY("io_getevents", syscall(SYS_io_getevents, p->context, 1, 1, &done, &length))                               \
	WAY("io_pgetevents", syscall(333, p->context, 1, 1, &done, &length, 0))                                        \
	WAY("io_uring_enter", wait_for_ring(p))                                                                        \
	WAY("recv", recv(p->pair[0], &byte, 1, 0))                                                                     \
	WAY("recvmsg", recvmsg(p->pair[0], &message.msg_hdr, 0))                                                       \
	WAY("recvmmsg", recvmmsg(p->pair[0], &message, 1, 0, 0))                                                       \
	WAY("read of a socket", read(p->pair[0], &byte, 1))                                                            \
	WAY("preadv2 of a socket", preadv2(p->pair[0], &one, 1, -1, 0))                                                \
	WAY("send", send(p->pair[1], "x", 1, 0))                                                                       \
	WAY("write to a socket", write(p->pair[1], "x", 1))                                                            \
	WAY("pwritev2 to a socket", pwritev2(p->pair[1], &one, 1, -1, 0))                                              \
	WAY("sendfile to a socket", sendfile(p->pair[1], p->file, &(off_t){0}, 1))                                     \
	WAY("accept", accept(p->listening, 0, 0))                                                                      \
	WAY("connect", connect_once((void *)&p->address, sizeof p->address))                                           \
	WAY("connect by TCP", connect_once((void *)&p->internet, sizeof p->internet))                                                                                \
	WAY("mq_timedreceive", mq_timedreceive(p->queue, &byte, 1, 0, &until))                                         \
	WAY("read of a timer", read_timer())                                                                           \
	WAY("wait", wait_for_child())

/// Fails when the queue of connections is full, after the timeout.
static int connect_once(const struct sockaddr *address, socklen_t size) {
	int end = socket(address->sa_family, SOCK_STREAM, 0);
	setsockopt(end, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0, LIMIT}, sizeof(struct timeval));
	int result = connect(end, address, size), error = errno;
	close(end);
	errno = error;
	return result;
}

static int read_timer(void) {
	unsigned long count;
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	timerfd_settime(timer, 0, &(struct itimerspec){.it_value = length}, 0);
	int result = read(timer, &count, 8);
	close(timer);
	return result;
}

static int wait_for_ring(struct place *p) {
	struct __kernel_timespec time = {0, LENGTH};
	struct io_uring_getevents_arg argument = {.ts = (unsigned long)&time};
	if (p->ring < 0)
		return syscall(SYS_ppoll, 0, 0, &(struct timespec){0, LENGTH}, 0, 8);
	int flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
	return syscall(SYS_io_uring_enter, p->ring, 0, 1, flags, &argument, sizeof argument);
}

static int wait_for_child(void) {
	pid_t child = fork();
	if (child == 0) {
		usleep(LENGTH / 1000);
		_exit(0);
	}
	return waitpid(child, 0, 0) == child;
}

static const char *names[] = {
#define NAME(name, call) name,
    WAYS(NAME)};
enum { COUNT = sizeof names / sizeof *names };
static atomic_int returns[COUNT];
static struct {
	long result;
	int error;
} expected[COUNT];

static int sends(long way) {
	return !strcmp(names[way], "send") || strstr(names[way], " to a socket");
}

static void fill(struct place *p, long way) {
	int ends[2];
	struct timeval limit = {0, LIMIT};
	if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, p->pair))
		perror("pipe");
	p->silent = ends[0];
	p->set = epoll_create1(0);
	if (!strcmp(names[way], "semtimedop"))
		p->semaphore = semaphore = semget(IPC_PRIVATE, 1, 0600);
	p->locked = getpid(); // the first thread holds it
	syscall(SYS_io_setup, 1, &p->context);
	sigemptyset(&p->signals);
	sigaddset(&p->signals, SIGUSR1);
	for (int i = 0; i < 2; i++) {
		setsockopt(p->pair[i], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
		setsockopt(p->pair[i], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	}
	while (send(p->pair[1], p, 1, MSG_DONTWAIT) == 1 && sends(way))
		;
	if (!sends(way))
		recv(p->pair[0], ends, 1, 0);
	p->address.sun_family = AF_UNIX;
	sprintf(p->address.sun_path + 1, "nopal-timeouts-%d-%ld", getpid(), way);
	p->listening = socket(AF_UNIX, SOCK_STREAM, 0);
	setsockopt(p->listening, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	if (bind(p->listening, (void *)&p->address, sizeof p->address) || listen(p->listening, 0))
		perror("listen");
	p->file = open("/proc/self/exe", O_RDONLY);
	p->ring = syscall(SYS_io_uring_setup, 4, &(struct io_uring_params){0});
	int internet = socket(AF_INET, SOCK_STREAM, 0);
	p->internet = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof p->internet;
	if (bind(internet, (void *)&p->internet, size) || listen(internet, 0))
		perror("listen");
	getsockname(internet, (void *)&p->internet, &size);
	char name[50];
	sprintf(name, "/nopal-timeouts-%d-%ld", getpid(), way);
	p->queue = mq_open(name, O_RDWR | O_CREAT, 0600, &(struct mq_attr){.mq_maxmsg = 1, .mq_msgsize = 1});
	mq_unlink(name);
}

static void *wait_over_and_over(void *argument) {
	long way = (long)argument, result = 0;
	struct place place = {0}, *p = &place;
	struct epoll_event event;
	struct io_event done;
	char byte;
	struct iovec one = {&byte, 1};
	struct mmsghdr message = {.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1}};
	fill(p, way);
	int other = -1;
	if (!strcmp(names[way], "connect")) {
		other = socket(AF_UNIX, SOCK_STREAM, 0);
		if (connect(other, (void *)&p->address, sizeof p->address))
			perror("connect");
	}
	if (!strcmp(names[way], "connect by TCP")) {
		other = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(other, (void *)&p->internet, sizeof p->internet))
			perror("connect");
	}
	for (int first = 1;; first = 0) {
		/* In this order: a stop between them does not make the wait until then too short. */
		long start = now();
		struct timespec until = soon(CLOCK_REALTIME);
		errno = 0;
		switch (way) {
			enum { FIRST = __COUNTER__ + 1 };
#define CASE(name, call)                                                                                               \
	case __COUNTER__ - FIRST:                                                                                      \
		result = call;                                                                                         \
		break;
			WAYS(CASE)
		}
		long took = now() - start;
		if (first) {
			expected[way].result = result;
			expected[way].error = errno;
			atomic_fetch_add(&begun, 1);
			continue;
		}
		// A connection that is tried again reports this error when its time is over.
		if (errno == EALREADY)
			errno = EINPROGRESS;
		int same = result == expected[way].result && errno == expected[way].error;
		if (!same || errno == EINTR || result == EINTR || took < LENGTH / 10 * 9) {
			printf("%s returned %ld after %ld us: %s\n", names[way], result, took / 1000, strerror(errno));
			atomic_fetch_add(&complaints, 1);
			usleep(10000);
		}
		atomic_fetch_add(&returns[way], 1);
	}
	return 0;
}

int main(void) {
	char byte;
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &signals, 0);
	for (long way = 0; way < COUNT; way++) {
		pthread_t thread;
		pthread_create(&thread, 0, wait_over_and_over, (void *)way);
	}
	while (begun < COUNT)
		usleep(1000);
	puts("ready");
	fflush(stdout);
	for (int i = 0; i < COUNT; i++)
		returns[i] = 0;
	if (read(0, &byte, 1) != 1)
		return 1;
	// Threads that were kept from returning have time to, now.
	for (int i = 0; i < COUNT; i++)
		for (int wait = 0; wait < PATIENCE && !returns[i]; wait++)
			usleep(1000);
	for (int i = 0; i < COUNT; i++)
		if (!returns[i] && (PATIENCE || strcmp(names[i], "pselect for a constant time")))
			printf("%s never returned\n", names[i]), complaints++;
	printf("%d complaints about %d calls\n", complaints, COUNT);
	fflush(stdout);
	semctl(semaphore, 0, IPC_RMID);
	_exit(0);
}
