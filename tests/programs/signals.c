/* Signal handlers that call traced functions: with every signal blocked, nested in each other, on a thread of its own,
 * while the thread waits in the kernel, with and without SA_RESTART. */
#define _GNU_SOURCE
#include "hard.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// calls: 100 on_blocked
// calls: 91 on_nested
// calls: 50 on_thread
// calls: 30 on_wait
// calls: 2 on_fault
// calls: 271 leaf

static volatile long calls;

KEPT static void leaf(void) { calls++; }

static void install(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	if (handler == SIG_DFL)
		sigemptyset(&action.sa_mask);
	else
		sigfillset(&action.sa_mask);
	if (flags & SA_NODEFER)
		sigemptyset(&action.sa_mask);
	CHECK(sigaction(signal, &action, NULL) == 0);
}

KEPT static void on_blocked(int signal)
{
	(void)signal;
	leaf();
}

static volatile int depth, deepest;

/* Nests 13 deep, 7 times. */
KEPT static void on_nested(int signal)
{
	leaf();
	depth++;
	if (depth > deepest)
		deepest = depth;
	if (depth < 13)
		raise(signal);
	depth--;
}

static volatile int thread_got;

KEPT static void on_thread(int signal)
{
	(void)signal;
	leaf();
	thread_got++;
}

static volatile int stop;

static void *thread_body(void *unused)
{
	while (!stop)
		EFFECT();
	return unused;
}

static volatile int waits;

KEPT static void on_wait(int signal)
{
	(void)signal;
	waits++;
}

static volatile int faults;
static char *guarded;

/* Repairs only its own jump over the fault: the second one must come from a call to address 0x10. */
KEPT static void on_fault(int signal, siginfo_t *info, void *context)
{
	ucontext_t *registers = context;
	CHECK(signal == SIGSEGV);
	faults++;
	if (info->si_addr == guarded) {
		registers->uc_mcontext.gregs[REG_RIP] = registers->uc_mcontext.gregs[REG_RBX];
	} else {
		CHECK(registers->uc_mcontext.gregs[REG_RIP] == 0x10);
		registers->uc_mcontext.gregs[REG_RIP] = *(long *)registers->uc_mcontext.gregs[REG_RSP];
		registers->uc_mcontext.gregs[REG_RSP] += 8;
	}
}

/* Returns when a process has been asleep at each of many looks, and not only for a moment. */
static void await_sleep(pid_t process)
{
	char path[32], text[256];
	snprintf(path, sizeof path, "/proc/%d/stat", process);
	for (int looks = 0; looks < 20;) {
		usleep(1000);
		int file = open(path, O_RDONLY);
		ssize_t length = read(file, text, sizeof text - 1);
		CHECK(length > 0 && close(file) == 0);
		text[length] = 0;
		/* The state follows the name, which is in parentheses. */
		char *state = strrchr(text, ')');
		CHECK(state && state[1] == ' ');
		looks = state[2] == 'S' ? looks + 1 : 0;
	}
}

int main(void)
{
	sigset_t all, before, now;
	sigfillset(&all);
	install(SIGUSR1, on_blocked, SA_RESTART);
	for (int i = 0; i < 50; i++)
		raise(SIGUSR1);
	/* With every signal blocked, SIGTRAP and SIGSEGV too, calls are still recorded. */
	sigprocmask(SIG_SETMASK, &all, &before);
	for (int i = 0; i < 30; i++)
		leaf();
	kill(getpid(), SIGUSR1);
	CHECK(calls == 80);
	CHECK(sigsuspend(&before) == -1 && errno == EINTR);
	CHECK(calls == 81);
	sigprocmask(SIG_SETMASK, &before, NULL);
	sigprocmask(SIG_SETMASK, NULL, &now);
	for (int signal = 1; signal < 64; signal++)
		CHECK(sigismember(&now, signal) == sigismember(&before, signal));
	for (int i = 0; i < 49; i++)
		kill(getpid(), SIGUSR1);
	printf("blocked %ld\n", calls);

	install(SIGUSR2, on_nested, SA_NODEFER);
	for (int i = 0; i < 7; i++)
		raise(SIGUSR2);
	printf("nested %d deep, %ld\n", deepest, calls);

	install(SIGRTMIN, on_thread, SA_RESTART);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, thread_body, NULL) == 0);
	for (int i = 0; i < 50; i++)
		CHECK(pthread_kill(thread, SIGRTMIN) == 0);
	while (thread_got < 50)
		usleep(100);
	stop = 1;
	pthread_join(thread, NULL);
	printf("thread %d\n", thread_got);

	/* An interrupted read goes on with SA_RESTART, and fails without. */
	int pipes[2];
	CHECK(pipe(pipes) == 0);
	for (int i = 0; i < 30; i++) {
		install(SIGALRM, on_wait, i % 2 ? SA_RESTART : 0);
		pid_t child = fork();
		if (child == 0) {
			await_sleep(getppid());
			kill(getppid(), SIGALRM);
			/* Writes only after the handler has run: a read that finds data is not interrupted. */
			await_sleep(getppid());
			CHECK(write(pipes[1], "x", 1) == 1);
			_exit(0);
		}
		char byte = 0;
		ssize_t got = read(pipes[0], &byte, 1);
		if (i % 2) {
			CHECK(got == 1);
		} else {
			CHECK(got == -1 && errno == EINTR);
			CHECK(read(pipes[0], &byte, 1) == 1);
		}
		CHECK(byte == 'x' && waitpid(child, NULL, 0) == child);
	}
	printf("waits %d\n", waits);

	struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	CHECK(sigaction(SIGSEGV, &fault, NULL) == 0);
	guarded = (char *)0x20;
	__asm__ volatile("leaq 1f(%%rip), %%rbx\n\tmovb $0, (%0)\n1:" ::"r"(guarded) : "rbx", "memory");
	((void (*volatile)(void))0x10)();
	printf("faults %d\n", faults);
	return 0;
}
