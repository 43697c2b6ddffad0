/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * crowds threads N              runs N threads at once, each of which calls a function
 * crowds libraries LIBRARY N    loads and unloads a library N times, and prints the nanoseconds of one time
 * crowds children N PROGRAM     executes a program N times, one after the other
 * crowds sleepers N             runs N threads that sleep nearly always, until the input ends. The answer to each line of
 *                               it is the longest gap that one more thread has seen since the last, in nanoseconds
 */
#ifdef LIBRARY

__attribute__((noipa)) int in_library(int n)
{
	return n + 1;
}

#else

#include "measure.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t all_here;
static double longest;

__attribute__((noipa)) static void step(void)
{
	__asm__ volatile("");
}

static void *live(void *unused)
{
	pthread_barrier_wait(&all_here);
	step();
	return unused;
}

static void *sleep_on(void *unused)
{
	struct timespec rest = { .tv_sec = 1 };
	for (;;) {
		step();
		nanosleep(&rest, NULL);
	}
	return unused;
}

static void *watch(void *unused)
{
	struct timespec rest = { .tv_nsec = 200000 };
	for (double last = nanoseconds();; nanosleep(&rest, NULL)) {
		double now = nanoseconds(), before;
		__atomic_load(&longest, &before, __ATOMIC_RELAXED);
		if (now - last > before) {
			double gap = now - last;
			__atomic_store(&longest, &gap, __ATOMIC_RELAXED);
		}
		last = now;
	}
	return unused;
}

static pthread_t begin(void *(*run)(void *))
{
	static pthread_attr_t small;
	static int is_made;
	if (!is_made++) {
		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, 64 << 10);
	}
	pthread_t thread;
	if (pthread_create(&thread, &small, run, NULL))
		exit(1);
	return thread;
}

static int threads(long count)
{
	pthread_t *all = calloc((size_t)count, sizeof *all);
	pthread_barrier_init(&all_here, NULL, (unsigned)count);
	for (long i = 0; i < count; i++)
		all[i] = begin(live);
	for (long i = 0; i < count; i++)
		pthread_join(all[i], NULL);
	free(all);
	return 0;
}

static int libraries(const char *path, long times)
{
	double start = 0;
	for (long i = 0; i <= times; i++) {
		if (i == 1)
			start = nanoseconds();
		void *library = dlopen(path, RTLD_NOW);
		int (*function)(int) = library ? (int (*)(int))dlsym(library, "in_library") : NULL;
		if (!function || function(1) != 2 || dlclose(library))
			return 1;
	}
	printf("each %f\n", (nanoseconds() - start) / times);
	return 0;
}

static int execute(char **program)
{
	int status;
	pid_t child = vfork();
	if (child == 0) {
		execv(program[0], program);
		_exit(1);
	}
	return child < 0 || waitpid(child, &status, 0) != child || status;
}

static int children(long count, char **program)
{
	for (long i = 0; i < count; i++)
		if (execute(program))
			return 1;
	return 0;
}

static int sleepers(long count)
{
	for (long i = 0; i < count; i++)
		begin(sleep_on);
	begin(watch);
	char line[16];
	while (fgets(line, sizeof line, stdin)) {
		double none = 0, found;
		__atomic_exchange(&longest, &none, &found, __ATOMIC_RELAXED);
		printf("%f\n", found);
		fflush(stdout);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "threads"))
		return threads(atol(argv[2]));
	if (argc == 4 && !strcmp(argv[1], "libraries"))
		return libraries(argv[2], atol(argv[3]));
	if (argc == 4 && !strcmp(argv[1], "children"))
		return children(atol(argv[2]), argv + 3);
	if (argc == 3 && !strcmp(argv[1], "sleepers"))
		return sleepers(atol(argv[2]));
	return 2;
}

#endif
