/* Children that trace their parent, that ask to be traced, and that their parent steps. The first succeed only if no
 * other process traces the parent, as any program may see. */
#define _GNU_SOURCE
#include "hard.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 40, STEPS = 300 };

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

static long work(long n)
{
	long sum = 0;
	for (long i = 0; i < n; i++)
		sum += leaf(i);
	return sum;
}

static int end_of(pid_t child)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

int main(void)
{
	long sum = 0;
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	for (int round = 0; round < ROUNDS; round++) {
		pid_t child = fork();
		if (child == 0) {
			(void)ptrace(PTRACE_SEIZE, getppid(), 0, 0);
			work(2000);
			_exit(4);
		}
		sum += work(20000);
		sum += WEXITSTATUS(end_of(child));
		child = fork();
		if (child == 0) {
			ptrace(PTRACE_TRACEME, 0, 0, 0);
			raise(SIGSTOP);
			work(2000);
			_exit(5);
		}
		CHECK(WIFSTOPPED(end_of(child)));
		for (int step = 0; step < STEPS; step++) {
			CHECK(ptrace(PTRACE_SINGLESTEP, child, 0, 0) == 0);
			int status = end_of(child);
			CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
		}
		CHECK(ptrace(PTRACE_DETACH, child, 0, 0) == 0);
		sum += WEXITSTATUS(end_of(child));
	}
	printf("%ld\n", sum);
	return 12;
}
