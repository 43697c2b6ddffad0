/* Executes a program, and lets it run from its first instruction when a line comes; prints its number before, and ends
 * with its status. */
#define _GNU_SOURCE
#include "hard.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
	int status, process = fork();

	CHECK(count > 1 && process >= 0);
	if (process == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execv(words[1], words + 1);
		_exit(127);
	}
	CHECK(waitpid(process, &status, 0) == process && WIFSTOPPED(status));
	CHECK(ptrace(PTRACE_DETACH, process, 0, SIGSTOP) == 0);
	printf("process %d\n", process);
	fflush(stdout);
	/* The rest of the input is the program's. */
	for (char byte = 0; byte != '\n';)
		CHECK(read(0, &byte, 1) == 1);
	CHECK(kill(process, SIGCONT) == 0 && waitpid(process, &status, 0) == process && WIFEXITED(status));
	return WEXITSTATUS(status);
}
