/* Threads that execute programs of many kinds, all at the same time. Arguments: the number of threads, the number of
 * children of each kind, and the programs. A program with '-' before it is killed as soon as it is executed. Prints how
 * each kind ended, alike for all its children; `status 99` is a program that cannot be executed.
 *
 * kinds again PROGRAM    executes this
 * kinds wait             waits until it is killed
 * kinds                  calls `ran` once, and ends with 7; so does it with an argument that is a file's name */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_EXECUTED = 99, MOST = 16 };

static char **programs;
static long kinds, children_left;
static int ends[MOST];

KEPT static void ran(void)
{
	__asm__ volatile("");
}

KEPT static void execute(long kind)
{
	const char *program = programs[kind];
	int is_killed = program[0] == '-';
	char *words[] = { (char *)program + is_killed, is_killed ? "wait" : NULL, NULL };
	if (strstr(program, "again"))
		words[1] = "again";
	pid_t child = vfork();
	if (child == 0) {
		execv(words[0], words);
		_exit(NOT_EXECUTED);
	}
	if (is_killed)
		CHECK(kill(child, SIGKILL) == 0);
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	int before = __atomic_exchange_n(&ends[kind], status + 1, __ATOMIC_RELAXED);
	CHECK(before == 0 || before == status + 1);
}

static void *spawn(void *unused)
{
	long left;
	while ((left = __atomic_sub_fetch(&children_left, 1, __ATOMIC_RELAXED)) >= 0)
		execute(left % kinds);
	return unused;
}

int main(int count, char **words)
{
	if (count == 2 && !strcmp(words[1], "wait"))
		return pause();
	if (count == 2 && !strcmp(words[1], "again"))
		return execl(words[0], words[0], NULL);
	if (count < 4) {
		ran();
		return 7;
	}
	long threads = atol(words[1]);
	programs = words + 3;
	kinds = count - 3;
	CHECK(kinds <= MOST);
	children_left = kinds * atol(words[2]);
	pthread_t *all = calloc((size_t)threads, sizeof *all);
	for (long i = 0; i < threads; i++)
		CHECK(pthread_create(&all[i], NULL, spawn, NULL) == 0);
	for (long i = 0; i < threads; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
	free(all);
	for (long i = 0; i < kinds; i++) {
		int status = ends[i] - 1;
		if (WIFSIGNALED(status))
			printf("kind %ld: signal %d\n", i, WTERMSIG(status));
		else
			printf("kind %ld: status %d\n", i, WEXITSTATUS(status));
	}
	return 0;
}
