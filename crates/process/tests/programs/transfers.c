// A thread for each call that waits until all of its bytes have been transferred, over and over, and one that takes or
// gives them slowly at the other end. Says, when it is told to end, how often a call returned another number of bytes
// than it was asked for, how often bytes were not those that were sent, and how many calls there were. With SIGNALS,
// handlers run meanwhile: a call may then return what it has transferred, but no other number.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 400000, PIECES = 7, AT_ONCE = 6000 };

static atomic_int cut, wrong, calls, done;

struct way {
	const char *name;
	long (*transfer)(int end, const unsigned char *bytes, int file);
	int ends[2]; // of the caller, and the other if there is one
	int receives, is_alone;
	atomic_long transferred; // by what the calls returned
	long passed, descriptors;
};

static long by_write(int end, const unsigned char *bytes, int file) {
	return write(end, bytes, BYTES);
}

static struct iovec *pieces(const unsigned char *bytes) {
	static _Thread_local struct iovec vector[PIECES];
	for (int piece = 0; piece < PIECES; piece++)
		vector[piece] = (struct iovec){(void *)(bytes + BYTES / PIECES * piece), BYTES / PIECES};
	vector[PIECES - 1].iov_len += BYTES % PIECES;
	return vector;
}

static long by_writev(int end, const unsigned char *bytes, int file) {
	return writev(end, pieces(bytes), PIECES);
}

static long by_send(int end, const unsigned char *bytes, int file) {
	return send(end, bytes, BYTES, 0);
}

// With a descriptor, which is to arrive once.
static long by_sendmsg(int end, const unsigned char *bytes, int file) {
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	memcpy(CMSG_DATA(&control.header), &file, sizeof file);
	struct msghdr message = {0, 0, pieces(bytes), PIECES, &control, sizeof control, 0};
	return sendmsg(end, &message, 0);
}

static long by_sendfile(int end, const unsigned char *bytes, int file) {
	return sendfile(end, file, &(off_t){0}, BYTES);
}

static long by_recv(int end, const unsigned char *bytes, int file) {
	static unsigned char received[BYTES];
	long length = recv(end, received, BYTES, MSG_WAITALL);
#ifndef SIGNALS
	wrong += length == BYTES && memcmp(received, bytes, BYTES);
#endif
	return length;
}

static long by_getrandom(int end, const unsigned char *bytes, int file) {
	static unsigned char random[BYTES];
	return syscall(SYS_getrandom, random, BYTES, 0);
}

// Of a device, which gives as many bytes as it is asked for.
static long by_read(int end, const unsigned char *bytes, int file) {
	static unsigned char random[BYTES];
	return read(end, random, BYTES);
}

static unsigned char bytes[BYTES];
static int file;

static void *caller(void *of) {
	struct way *way = of;
	while (!done) {
		long length = way->transfer(way->ends[0], bytes, file);
#ifdef SIGNALS
		if (length < 0 && errno == EINTR)
			length = 0;
		cut += length < 0;
#else
		cut += length != BYTES;
#endif
		calls++;
		if (length > 0)
			way->transferred += length;
		if (way->is_alone)
			nanosleep(&(struct timespec){0, 3000000}, 0);
	}
	return 0;
}

static long take(struct way *way, unsigned char *into) {
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {0}};
	if (way->transfer != by_sendmsg)
		return read(way->ends[1], into, AT_ONCE);
	struct iovec all = {into, AT_ONCE};
	struct msghdr message = {0, 0, &all, 1, &control, sizeof control, 0};
	long length = recvmsg(way->ends[1], &message, 0);
	if (length > 0 && message.msg_controllen) {
		way->descriptors++;
		int received;
		memcpy(&received, CMSG_DATA(&control.header), sizeof received);
		close(received);
	}
	return length;
}

static void *other(void *of) {
	struct way *way = of;
	unsigned char some[AT_ONCE];
	for (;;) {
		long at = way->passed % BYTES, length = BYTES - at < AT_ONCE ? BYTES - at : AT_ONCE;
		if (way->receives) {
			length = write(way->ends[1], bytes + at, length);
		} else {
			length = take(way, some);
#ifndef SIGNALS
			for (long byte = 0; byte < length; byte++)
				if (some[byte] != bytes[(way->passed + byte) % BYTES]) {
					wrong++;
					break;
				}
#endif
		}
		if (length > 0)
			way->passed += length;
		else if (!length || errno == EPIPE)
			return 0;
		nanosleep(&(struct timespec){0, 50000}, 0);
	}
}

static void ignore(int signal) {}

int main(void) {
	for (int at = 0; at < BYTES; at++)
		bytes[at] = at * 7 + at / 251;
	file = memfd_create("bytes", 0);
	struct way ways[] = {
		{"write to a pipe", by_write},
		{"write to a terminal", by_write},
		{"writev to a pipe", by_writev},
		{"send", by_send},
		{"sendmsg", by_sendmsg},
		{"sendfile", by_sendfile},
		{"recv", by_recv, .receives = 1},
		{"getrandom", by_getrandom, .is_alone = 1},
		{"read of random bytes", by_read, .is_alone = 1},
	};
	enum { WAYS = sizeof ways / sizeof *ways };
	pthread_t callers[WAYS], others[WAYS];
	signal(SIGPIPE, SIG_IGN);
	sigset_t alarms;
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGUSR1);
	sigaction(SIGUSR1, &(struct sigaction){.sa_handler = ignore}, 0);
	if (write(file, bytes, BYTES) != BYTES)
		return 1;
	for (int at = 0; at < WAYS; at++) {
		struct way *way = ways + at;
		int ends[2], failed;
		if (way->is_alone) {
			ends[0] = open("/dev/urandom", O_RDONLY);
			failed = ends[0] < 0;
		} else if (strstr(way->name, "terminal")) {
			struct termios settings;
			failed = openpty(&ends[1], &ends[0], 0, 0, 0) || tcgetattr(ends[0], &settings);
			cfmakeraw(&settings);
			failed = failed || tcsetattr(ends[0], TCSANOW, &settings);
		} else if (strstr(way->name, "pipe")) {
			int ways[2];
			failed = pipe(ways);
			ends[0] = ways[1];
			ends[1] = ways[0];
		} else {
			failed = socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
		}
		if (failed)
			return 2;
		memcpy(way->ends, ends, sizeof ends);
		pthread_create(&callers[at], 0, caller, way);
		// The other end is not under test.
		pthread_sigmask(SIG_BLOCK, &alarms, 0);
		if (!way->is_alone)
			pthread_create(&others[at], 0, other, way);
		pthread_sigmask(SIG_UNBLOCK, &alarms, 0);
	}
	pthread_sigmask(SIG_BLOCK, &alarms, 0);
	puts("ready");
	fflush(stdout);
	// Told to end when something can be read.
	fcntl(0, F_SETFL, O_NONBLOCK);
	for (char told; read(0, &told, 1) < 0;) {
		nanosleep(&(struct timespec){0, 1000000}, 0);
#ifdef SIGNALS
		for (int at = 0; at < WAYS; at++)
			pthread_kill(callers[at], SIGUSR1);
#endif
	}
	done = 1;
	for (int at = 0; at < WAYS; at++) {
		struct way *way = ways + at;
		pthread_join(callers[at], 0);
		if (way->is_alone)
			continue;
		if (way->receives) {
			// It has received all that it was sent, or the rest is there. A thread that is cancelled in a call
			// may have sent bytes that it has not counted.
			shutdown(way->ends[0], SHUT_RD);
			pthread_join(others[at], 0);
			static unsigned char rest[AT_ONCE];
			for (long length; (length = recv(way->ends[0], rest, AT_ONCE, MSG_DONTWAIT)) > 0;)
				way->transferred += length;
		} else if (strstr(way->name, "terminal")) {
			// The end of a terminal may take away the last bytes.
			while (way->passed < way->transferred)
				nanosleep(&(struct timespec){0, 1000000}, 0);
			pthread_cancel(others[at]);
			pthread_join(others[at], 0);
		} else {
			close(way->ends[0]);
			pthread_join(others[at], 0);
		}
		if (way->passed != way->transferred) {
			wrong++;
			fprintf(stderr, "%s: %ld, not %ld\n", way->name, way->passed, way->transferred);
		}
#ifndef SIGNALS
		wrong += way->descriptors * BYTES > way->passed;
#endif
	}
	printf("%d cut, %d wrong, %s\n", cut, wrong, calls > WAYS * 4 ? "many calls" : "few calls");
	fflush(stdout);
	return 0;
}
