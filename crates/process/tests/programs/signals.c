// Says which signals it is given, in order, until standard input ends. How it waits is its argument.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { MOST = 100000 };
static int values[MOST];
static atomic_int count, plain;

static void queued(int signal, siginfo_t *information, void *context) {
	values[atomic_fetch_add(&count, 1) % MOST] = information->si_code == SI_QUEUE ? information->si_value.sival_int : -1;
}

static void simple(int signal) {
	atomic_fetch_add(&plain, 1);
}

static void *idle(void *argument) {
	for (;;)
		pause();
	return 0;
}

int main(int argc, char **argv) {
	int set = epoll_create1(0), spin = !strcmp(argv[1], "spin");
	struct epoll_event event = {.events = EPOLLIN};
	sigset_t all, before;
	epoll_ctl(set, EPOLL_CTL_ADD, 0, &event);
	sigaction(SIGRTMIN, &(struct sigaction){.sa_sigaction = queued, .sa_flags = SA_SIGINFO}, 0);
	sigaction(SIGUSR1, &(struct sigaction){.sa_handler = simple}, 0);
	sigaction(SIGSEGV, &(struct sigaction){.sa_handler = simple}, 0);
	sigaction(SIGTRAP, &(struct sigaction){.sa_handler = simple}, 0);
	signal(SIGWINCH, SIG_IGN);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	for (int i = 0; !strcmp(argv[1], "threads") && i < 4; i++) {
		pthread_t thread;
		pthread_create(&thread, 0, idle, 0);
	}
	// "pwait": signals can come only while it waits, and each must end the wait.
	int atomic = !strcmp(argv[1], "pwait");
	if (!atomic)
		pthread_sigmask(SIG_SETMASK, &before, 0);
	puts("ready");
	fflush(stdout);
	for (;;) {
		int seen = plain;
		int found = atomic ? epoll_pwait(set, &event, 1, -1, &before) : epoll_wait(set, &event, 1, spin ? 0 : -1);
		if (found == 1)
			break;
		if (atomic) {
			printf("%s\n", errno == EINTR && plain > seen ? "woken" : "woken without a reason");
			fflush(stdout);
		}
	}
	for (int i = 0; i < count; i++)
		printf("%d ", values[i]);
	printf("and %d others\n", plain);
	fflush(stdout);
	return 0;
}
