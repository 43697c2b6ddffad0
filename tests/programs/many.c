/* Three thousand functions, called at a line on standard input:
 * all    each of them once
 * thread each of them once, in the second thread
 * fork   each of them once, in a forked child
 * load F the function late() of the library F, once
 * stay F the function late() of the library F, once, in a forked child that stays; says "child" with its id
 * again  executes the same program
 * pair N two functions of equal work, each N times; says how long each took, in nanoseconds
 * Prints "ready" with the ids of both threads, then "done" for each line. */
#include "hard.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile long sum;

#define FUNCTION(n) KEPT static void f_##n(void) { sum += 0x1##n; }
#define POINTER(n) f_##n,
#define TEN(what, n) what(n##0) what(n##1) what(n##2) what(n##3) what(n##4) what(n##5) what(n##6) what(n##7) what(n##8) what(n##9)
#define TENS(what, n) TEN(what, n##0) TEN(what, n##1) TEN(what, n##2) TEN(what, n##3) TEN(what, n##4) \
	TEN(what, n##5) TEN(what, n##6) TEN(what, n##7) TEN(what, n##8) TEN(what, n##9)
#define THOUSAND(what, n) TENS(what, n##0) TENS(what, n##1) TENS(what, n##2) TENS(what, n##3) TENS(what, n##4) \
	TENS(what, n##5) TENS(what, n##6) TENS(what, n##7) TENS(what, n##8) TENS(what, n##9)

THOUSAND(FUNCTION, 0)
THOUSAND(FUNCTION, 1)
THOUSAND(FUNCTION, 2)

static void (*const functions[])(void) = { THOUSAND(POINTER, 0) THOUSAND(POINTER, 1) THOUSAND(POINTER, 2) };

KEPT static void call_all(void)
{
	for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++)
		functions[i]();
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int second_id, asked, answered;

static void *second(void *unused)
{
	pthread_mutex_lock(&lock);
	second_id = (int)syscall(SYS_gettid);
	pthread_cond_broadcast(&changed);
	for (;;) {
		while (asked == answered)
			pthread_cond_wait(&changed, &lock);
		call_all();
		answered++;
		pthread_cond_broadcast(&changed);
	}
	return unused;
}

static void in_second_thread(void)
{
	pthread_mutex_lock(&lock);
	asked++;
	pthread_cond_broadcast(&changed);
	while (asked != answered)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		call_all();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	CHECK(library);
	void (*late)(void) = (void (*)(void))dlsym(library, "late");
	CHECK(late);
	late();
}

static void stay(const char *path)
{
	int ready[2];
	char byte;
	CHECK(pipe(ready) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
		load(path);
		CHECK(write(ready[1], "", 1) == 1);
		for (;;)
			pause();
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	printf("child %d\n", (int)child);
}

KEPT static void one(void) { sum += 0x77; }
KEPT static void other(void) { sum += 0x78; }

static long nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000 + now.tv_nsec;
}

static void pair(long count)
{
	long begin = nanoseconds();
	for (long i = 0; i < count; i++)
		one();
	long middle = nanoseconds();
	for (long i = 0; i < count; i++)
		other();
	printf("%ld %ld\n", middle - begin, nanoseconds() - middle);
}

int main(int count, char **words)
{
	char line[256];
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, second, NULL) == 0);
	pthread_mutex_lock(&lock);
	while (!second_id)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	printf("ready %d %d\n", getpid(), second_id);
	if (count > 1)
		puts("done");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "all"))
			call_all();
		else if (!strcmp(line, "thread"))
			in_second_thread();
		else if (!strcmp(line, "fork"))
			in_child();
		else if (!strncmp(line, "load ", 5))
			load(line + 5);
		else if (!strncmp(line, "stay ", 5))
			stay(line + 5);
		else if (!strcmp(line, "again"))
			execl("/proc/self/exe", words[0], line, NULL);
		else if (!strncmp(line, "pair ", 5))
			pair(atol(line + 5));
		else
			return 9;
		puts("done");
		fflush(stdout);
	}
	printf("end %ld\n", sum);
	return 5;
}
