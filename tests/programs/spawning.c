/* Threads that execute programs, all at the same time. Arguments: the number of threads, the number of children in all,
 * and the program with its arguments. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static char **program;
static long children_left;

KEPT static void execute(void)
{
	pid_t child = vfork();
	if (child == 0) {
		execv(program[0], program);
		_exit(1);
	}
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

KEPT static void *spawn(void *unused)
{
	while (__atomic_fetch_sub(&children_left, 1, __ATOMIC_RELAXED) > 0)
		execute();
	return unused;
}

int main(int count, char **words)
{
	CHECK(count > 3);
	long threads = atol(words[1]), children = atol(words[2]);
	children_left = children;
	program = words + 3;
	pthread_t *all = calloc((size_t)threads, sizeof *all);
	for (long i = 0; i < threads; i++)
		CHECK(pthread_create(&all[i], NULL, spawn, NULL) == 0);
	for (long i = 0; i < threads; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
	free(all);
	puts("all have ended");
	printf("calls: %ld execute\ncalls: %ld spawn\n", children, threads);
	return 0;
}
