/* Makes its parent its tracer, or stops itself, or leaves a child of vfork behind that sleeps. */
#define _GNU_SOURCE
#include "hard.h"
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <unistd.h>

int main(int count, char **words)
{
	CHECK(count == 2);
	puts("ready");
	fflush(stdout);
	if (!strcmp(words[1], "traced")) {
		CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
		raise(SIGWINCH);
	} else if (!strcmp(words[1], "stopped")) {
		raise(SIGSTOP);
	} else if (vfork() == 0) {
		sleep(30);
		_exit(0);
	}
	for (;;)
		pause();
}
