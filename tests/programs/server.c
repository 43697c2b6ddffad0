/* A server that forks a child for each request, of which there is one each millisecond until its standard input ends. A
 * child lives for 3 ms. Prints "ready" first. */
#include "hard.h"
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

KEPT static void served(void)
{
	usleep(3000);
}

int main(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	puts("ready");
	fflush(stdout);
	while (poll(&input, 1, 1) == 0) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			served();
			_exit(0);
		}
		while (waitpid(-1, NULL, WNOHANG) > 0) {
		}
	}
	while (wait(NULL) > 0) {
	}
	return 5;
}
