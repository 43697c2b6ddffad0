/* Denies itself memory that is writable and executable, or that becomes executable. Argument: a library to load. */
#define _GNU_SOURCE
#include "hard.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SET_MDWE = 65, REFUSE_EXEC_GAIN = 1, ROUNDS = 60 };

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

static int callback(int n)
{
	return (int)leaf(n);
}

static void *work(void *unused)
{
	long sum = 0;
	(void)unused;
	for (long i = 0; i < 3000; i++)
		sum += leaf(i);
	return (void *)sum;
}

int main(int count, char **arguments)
{
	long sum = 0;
	CHECK(count == 2);
	/* Kernels before 6.3 lack it. */
	if (prctl(SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) == 0)
		CHECK(mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	for (int round = 0; round < ROUNDS; round++) {
		void *result, *library = dlopen(arguments[1], RTLD_NOW);
		CHECK(library);
		int (*entry)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "library_entry");
		for (int i = 0; i < 500; i++)
			sum += entry(callback, 3);
		CHECK(dlclose(library) == 0);
		pthread_t thread;
		CHECK(pthread_create(&thread, 0, work, 0) == 0 && pthread_join(thread, &result) == 0);
		int status;
		pid_t child = fork();
		if (child == 0)
			_exit((int)leaf(3));
		CHECK(waitpid(child, &status, 0) == child);
		sum += status + (long)result;
		usleep(1000);
	}
	printf("%ld\n", sum);
	return 7;
}
