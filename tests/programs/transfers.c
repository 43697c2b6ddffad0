/* Threads that expect whole transfers, since the program handles no signals: the other ends are slow, so each call
 * waits amid its bytes. */
#include "hard.h"
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 300000, AT_ONCE = 5000, TRANSFERS = 30 };

static char bytes[BYTES];

KEPT static void put(int end)
{
	CHECK(write(end, bytes, BYTES) == BYTES); // calls: 30 put
}

KEPT static void give(int end)
{
	CHECK(send(end, bytes, BYTES, 0) == BYTES); // calls: 30 give
}

KEPT static void take(int end)
{
	static char taken[BYTES];
	CHECK(recv(end, taken, BYTES, MSG_WAITALL) == BYTES); // calls: 30 take
	CHECK(memcmp(taken, bytes, BYTES) == 0);
}

struct way {
	void (*transfer)(int);
	int is_pipe, receives, ends[2];
};

static void *caller(void *of)
{
	struct way *way = of;
	for (int transfer = 0; transfer < TRANSFERS; transfer++)
		way->transfer(way->ends[0]);
	return NULL;
}

static void *other(void *of)
{
	struct way *way = of;
	char some[AT_ONCE];
	for (long at = 0, length; at < (long)TRANSFERS * BYTES; at += length) {
		if (way->receives) {
			length = write(way->ends[1], bytes + at % BYTES, AT_ONCE);
			CHECK(length == AT_ONCE);
		} else {
			length = read(way->ends[1], some, BYTES - at % BYTES < AT_ONCE ? BYTES - at % BYTES : AT_ONCE);
			CHECK(length > 0 && memcmp(some, bytes + at % BYTES, (size_t)length) == 0);
		}
		nanosleep(&(struct timespec){0, 200000}, NULL);
	}
	return NULL;
}

int main(void)
{
	for (int at = 0; at < BYTES; at++)
		bytes[at] = (char)(at * 7 + at / 251);
	struct way ways[] = {{put, 1, 0, {0, 0}}, {give, 0, 0, {0, 0}}, {take, 0, 1, {0, 0}}};
	enum { WAYS = sizeof ways / sizeof *ways };
	pthread_t threads[WAYS][2];
	for (int at = 0; at < WAYS; at++) {
		int ends[2];
		CHECK((ways[at].is_pipe ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) == 0);
		ways[at].ends[0] = ends[ways[at].is_pipe];
		ways[at].ends[1] = ends[!ways[at].is_pipe];
		CHECK(pthread_create(&threads[at][0], NULL, caller, &ways[at]) == 0);
		CHECK(pthread_create(&threads[at][1], NULL, other, &ways[at]) == 0);
	}
	for (int at = 0; at < WAYS; at++) {
		CHECK(pthread_join(threads[at][0], NULL) == 0);
		CHECK(pthread_join(threads[at][1], NULL) == 0);
	}
	puts("all transfers were whole");
	return 0;
}
