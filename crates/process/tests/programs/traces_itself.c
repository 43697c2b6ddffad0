// Has a child in its memory stop its threads for a moment and let go of them, as LeakSanitizer does. The child waits for
// a byte of the input before. Says how many threads it could not stop.
#include <sched.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, STACK = 256 << 10 };
static pid_t numbers[THREADS];
static atomic_int begun, may_trace, done;

static void *spin(void *number) {
	numbers[(long)number] = syscall(SYS_gettid);
	atomic_fetch_add(&begun, 1);
	for (;;)
		sched_yield();
	return 0;
}

static int stop_all(void *unused) {
	(void)unused;
	char byte;
	int failed = 0, stopped[THREADS] = {0};
	while (!may_trace)
		sched_yield();
	failed += syscall(SYS_read, 0, &byte, 1) != 1;
	for (int i = 0; i < THREADS; i++) {
		stopped[i] = syscall(SYS_ptrace, PTRACE_ATTACH, numbers[i], 0, 0) == 0 &&
			     syscall(SYS_wait4, numbers[i], 0, __WALL, 0) == numbers[i];
		failed += !stopped[i];
	}
	struct timespec moment = {0, 300000000};
	syscall(SYS_nanosleep, &moment, 0);
	for (int i = 0; i < THREADS; i++)
		if (stopped[i])
			syscall(SYS_ptrace, PTRACE_DETACH, numbers[i], 0, 0);
	done = 1;
	syscall(SYS_exit, failed);
	return 0;
}

int main(void) {
	pthread_t thread;
	numbers[0] = getpid();
	for (long i = 1; i < THREADS; i++)
		pthread_create(&thread, 0, spin, (void *)i);
	while (begun < THREADS - 1)
		sched_yield();
	char *stack = malloc(STACK);
	for (;;) {
		int status;
		may_trace = done = 0;
		pid_t child = clone(stop_all, stack + STACK, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED, 0);
		prctl(PR_SET_PTRACER, child, 0, 0, 0);
		puts("ready");
		fflush(stdout);
		may_trace = 1;
		while (!done)
			sched_yield();
		if (waitpid(child, &status, __WALL) != child || !WIFEXITED(status))
			return 1;
		printf("%d failed\n", WEXITSTATUS(status));
		fflush(stdout);
	}
}
