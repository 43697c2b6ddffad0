/* System calls that the kernel turns into SIGSYS, as Wine has it for Windows' code: with "outside", those from outside
 * of libc while a byte asks for it; with "all", all of them meanwhile. The program makes one such call a round, and its
 * handler counts the calls of others. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 300, NO_CALL = 9999, RESTORER_BYTES = 16, SA_RESTORER_ = 0x04000000 };

static volatile char selector;
static volatile long caught, strange;

static void on_call(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)context;
	selector = SYSCALL_DISPATCH_FILTER_ALLOW;
	caught++;
	strange += information->si_syscall != NO_CALL;
	selector = SYSCALL_DISPATCH_FILTER_BLOCK;
}

__attribute__((naked)) static void restorer(void)
{
	__asm__("mov $15, %eax\n\tsyscall");
}

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

KEPT static long down(long n)
{
	char room[2000];
	__asm__ volatile("" ::"r"(room) : "memory");
	return n ? RETURNED(down(n - 1)) + 1 : 0;
}

static long work(long n)
{
	long sum = 0;
	for (long i = 0; i < n; i++)
		sum += leaf(i);
	return sum;
}

static void *thread(void *n)
{
	return (void *)work((long)n);
}

static void call(void)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "0"(NO_CALL) : "rcx", "r11", "memory");
}

static void text_of_libc(unsigned long *begin, unsigned long *length)
{
	char line[500];
	unsigned long end = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	*begin = 0;
	while (fgets(line, sizeof line, maps))
		if (strstr(line, "r-xp") && strstr(line, "libc.so"))
			CHECK(sscanf(line, "%lx-%lx", begin, &end) == 2);
	fclose(maps);
	CHECK(*begin);
	*length = end - *begin;
}

int main(int count, char **arguments)
{
	int all = count > 1 && !strcmp(arguments[1], "all");
	unsigned long begin = (unsigned long)restorer, length = RESTORER_BYTES;
	/* This is the kernel's own structure: libc would set its own restorer. */
	struct {
		void (*handler)(int, siginfo_t *, void *);
		unsigned long flags;
		void (*restorer)(void);
		unsigned long mask;
	} action = { on_call, SA_SIGINFO | SA_NODEFER | SA_RESTORER_, restorer, 0 };
	CHECK(syscall(SYS_rt_sigaction, SIGSYS, &action, 0, 8) == 0);
	if (!all) {
		action.flags = SA_SIGINFO | SA_NODEFER;
		struct sigaction plain = { .sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_NODEFER };
		CHECK(sigaction(SIGSYS, &plain, 0) == 0);
		text_of_libc(&begin, &length);
	}
	CHECK(prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, begin, length, &selector) == 0);
	long sum = 0;
	for (long round = 0; round < ROUNDS; round++) {
		selector = SYSCALL_DISPATCH_FILTER_BLOCK;
		sum += work(1000) + down(round * 10 % 3000);
		call();
		if (all)
			selector = SYSCALL_DISPATCH_FILTER_ALLOW;
		usleep(1000);
		if (!all && round % 50 == 0) {
			int status;
			void *result;
			pthread_t other;
			pid_t child = fork();
			if (child == 0)
				_exit((int)work(3) & 7);
			CHECK(waitpid(child, &status, 0) == child);
			CHECK(pthread_create(&other, 0, thread, (void *)3000) == 0);
			CHECK(pthread_join(other, &result) == 0);
			sum += status + (long)result;
		}
	}
	selector = SYSCALL_DISPATCH_FILTER_ALLOW;
	printf("%ld %ld %ld\n", sum, caught, strange);
	return 6;
}
