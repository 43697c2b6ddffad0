/* Its one thread waits for a child of vfork, then for the next, until the input ends. */
#define _GNU_SOURCE
#include "hard.h"
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

KEPT static int status_of(pid_t child)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

int main(void)
{
	struct pollfd input = { .events = POLLIN };
	puts("ready");
	fflush(stdout);
	while (poll(&input, 1, 0) == 0) {
		pid_t child = vfork();
		if (child == 0) {
			usleep(20000);
			_exit(3);
		}
		CHECK(status_of(child) == 3);
	}
	return 0;
}
