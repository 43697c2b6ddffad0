/* Works in phases, as phases.c does, under odd circumstances, which its arguments name:
 *     leaderless     in a second thread, after the first has ended; with "full" after it, both apply
 *     full           without a free descriptor, where the limit may be raised
 *     locked         the same where it may not */
#include "hard.h"
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static pthread_t first;
static int fills;

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

KEPT static long descend(long left) { return left ? RETURNED(descend(left - 1)) + leaf(0) : 0; }

static void phases(void)
{
	char line[16];
	for (int phase = 0;; phase++) {
		for (int i = 0; i < 100; i++)
			CHECK(descend(10) == 10);
		printf("phase %d\n", phase);
		fflush(stdout);
		if (!fgets(line, sizeof line, stdin))
			break;
	}
	puts("end");
}

static void fill(int is_locked)
{
	struct rlimit limit;
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = 32;
	if (is_locked)
		limit.rlim_max = 32;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	while (dup(0) >= 0) {
	}
}

static void *alone(void *unused)
{
	CHECK(pthread_join(first, NULL) == 0);
	if (fills)
		fill(0);
	phases();
	exit(5);
	return unused;
}

int main(int count, char **words)
{
	const char *way = count > 1 ? words[1] : "";
	fills = count > 2 && strcmp(words[2], "full") == 0;
	if (strcmp(way, "full") == 0)
		fill(0);
	if (strcmp(way, "locked") == 0)
		fill(1);
	if (strcmp(way, "leaderless") == 0) {
		pthread_t thread;
		first = pthread_self();
		CHECK(pthread_create(&thread, NULL, alone, NULL) == 0);
		pthread_exit(NULL);
	}
	phases();
	return 5;
}
