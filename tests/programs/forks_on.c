/* Forks all the time, until the input ends; each child lives for a second. */
#include "hard.h"
#include <poll.h>
#include <signal.h>
#include <unistd.h>

KEPT static int leaf(int value)
{
	EFFECT();
	return value + 1;
}

int main(void)
{
	struct pollfd input = { .events = POLLIN };
	signal(SIGCHLD, SIG_IGN);
	puts("ready");
	fflush(stdout);
	while (poll(&input, 1, 2) == 0) {
		if (fork() != 0)
			continue;
		for (int i = 0; i < 100; i++) {
			leaf(i);
			usleep(10000);
		}
		_exit(0);
	}
	return 5;
}
