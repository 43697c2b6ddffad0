// Threads that compute, sleep, wait with a timeout, load libraries and start children, and check their results. With
// "first", executes itself before. Prints "ready" and its number, and at the end of its input whether all was right.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static atomic_int wrong, over;

static void complain(const char *what, long found) {
	fprintf(stderr, "wrong: %s: %ld, %s\n", what, found, strerror(errno));
	wrong++;
}

__attribute__((noinline)) double third(double a, double b) {
	return a * 3 + b;
}

__attribute__((noinline)) double second(double a, int depth) {
	return depth ? third(second(a, depth - 1), 1) : a;
}

static void *compute(void *unused) {
	double expected = 0;
	for (int i = 0; i < 20; i++)
		expected = expected * 3 + 1;
	while (!over) {
		double found = second(0, 20);
		if (found != expected)
			complain("sum", (long)found);
	}
	return unused;
}

static void *sleep_over_and_over(void *unused) {
	while (!over)
		if (nanosleep(&(struct timespec){0, 3000000}, 0))
			complain("nanosleep", errno);
	return unused;
}

static void *wait_over_and_over(void *unused) {
	int set = epoll_create1(0);
	struct epoll_event event;
	while (!over) {
		int found = epoll_wait(set, &event, 1, 3);
		// If the tool dies just as it stops a thread, no process is left to have the call repeated.
		if (found && errno != EINTR)
			complain("epoll_wait", found);
	}
	return unused;
}

static void load(void) {
	void *library = dlopen("libm.so.6", RTLD_NOW), *other = dlopen("libz.so.1", RTLD_NOW);
	double (*cosine)(double) = library ? (double (*)(double))dlsym(library, "cos") : 0;
	if (!cosine || cosine(0) != 1)
		complain("cos", 0);
	if (library)
		dlclose(library);
	if (other)
		dlclose(other);
}

static void start_child(int executes) {
	int status = -1;
	pid_t child;
	if (executes) {
		if (posix_spawn(&child, "/bin/true", 0, 0, (char *[]){"true", 0}, environ))
			complain("posix_spawn", 0);
	} else if ((child = fork()) == 0)
		_exit(second(0, 3) == 13 ? 0 : 1);
	if (waitpid(child, &status, 0) != child || status)
		complain("child", status);
}

static void *work(void *unused) {
	sigset_t before, now;
	sigemptyset(&before);
	sigaddset(&before, SIGUSR2);
	pthread_sigmask(SIG_SETMASK, &before, 0);
	for (int round = 0; !over; round++) {
		if (round % 20 == 0)
			load(), start_child(round % 40 == 0);
		pthread_sigmask(SIG_SETMASK, 0, &now);
		if (memcmp(&before, &now, 8))
			complain("mask", *(long *)&now);
		usleep(1000);
	}
	return unused;
}

int main(int count, char **arguments) {
	static void *(*const all[])(void *) = {compute, compute, sleep_over_and_over, wait_over_and_over, work};
	enum { COUNT = sizeof all / sizeof *all };
	pthread_t threads[COUNT];
	char line[100];
	if (count > 1 && !strcmp(arguments[1], "first")) {
		load();
		execl("/proc/self/exe", arguments[0], "then", (char *)0);
		complain("exec", 0);
	}
	for (int i = 0; i < COUNT; i++)
		pthread_create(&threads[i], 0, all[i], 0);
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof line, stdin))
		;
	over = 1;
	for (int i = 0; i < COUNT; i++)
		pthread_join(threads[i], 0);
	printf("%s\n", wrong ? "wrong" : "right");
	return wrong ? 1 : 37;
}
