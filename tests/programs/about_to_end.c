/* A process that is about to end: it has no memory any more, and is no zombie yet. The first process of a PID namespace
 * waits there for the end of all others, and one of these waits for us. Prints its id, and ends it after a line of input. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "hard.h"

static pid_t sleeper(void)
{
	pid_t process = fork();
	CHECK(process >= 0);
	while (process == 0)
		pause();
	return process;
}

int main(void)
{
	CHECK(unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0);
	pid_t first = sleeper();
	pid_t other = sleeper();
	CHECK(kill(first, SIGKILL) == 0);
	printf("%d\n", first);
	fflush(stdout);
	CHECK(getchar() == '\n');
	CHECK(waitpid(other, NULL, 0) == other && waitpid(first, NULL, 0) == first);
	return 0;
}
