/* Forks two children, each the first of a PID namespace. Each executes this program again, one after the other:
 * `same_ids 17` ends with that status. */
#define _GNU_SOURCE
#include "hard.h"
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// calls: 2 executed

static int way[2][2];

KEPT static int executed(int status)
{
	EFFECT();
	return status;
}

KEPT static pid_t begin(int child, char *program)
{
	pid_t pid = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		char byte;
		CHECK(getpid() == 1 && read(way[child][0], &byte, 1) == 1);
		execl(program, program, "17", NULL);
		CHECK(!"execl came back");
	}
	CHECK(pid > 0);
	return pid;
}

KEPT static void let_execute(int child, pid_t pid)
{
	int status;
	CHECK(write(way[child][1], "", 1) == 1);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 17);
}

int main(int count, char **words)
{
	if (count > 1)
		return executed(atoi(words[1]));
	pid_t children[2];
	for (int child = 0; child < 2; child++) {
		CHECK(pipe(way[child]) == 0);
		children[child] = begin(child, words[0]);
	}
	for (int child = 0; child < 2; child++)
		let_execute(child, children[child]);
	return 0;
}
