/* Locks all memory, present and future, as root and as a user with a limit. */
#include "hard.h"
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// calls: 40 work

static volatile char sink;

KEPT static void work(long bytes)
{
	char *memory = malloc((size_t)bytes);
	CHECK(memory);
	memset(memory, 1, (size_t)bytes);
	sink = memory[bytes / 2];
	free(memory);
}

static void *body(void *unused)
{
	for (int i = 0; i < 10; i++)
		work(100000);
	return unused;
}

static void some_work(void)
{
	body(NULL);
	pthread_t thread;
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 256 << 10);
	CHECK(pthread_create(&thread, &attributes, body, NULL) == 0);
	pthread_join(thread, NULL);
}

int main(void)
{
	/* A second arena would reserve more than a user may lock. */
	mallopt(M_ARENA_MAX, 1);
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		printf("mlockall: %s\n", strerror(errno));
	some_work();
	CHECK(munlockall() == 0);
	if (geteuid() == 0) {
		struct rlimit limit;
		CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
		if (limit.rlim_max > 64 << 20)
			limit.rlim_max = 64 << 20;
		limit.rlim_cur = limit.rlim_max;
		CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	}
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		printf("mlockall as a user: %s\n", strerror(errno));
	some_work();
	puts("locked");
	return 0;
}
