// A parent that vfork holds until its child has read a byte from standard input. "spawn": creates children until there is one.
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int spawn(void) {
	struct pollfd end = {.events = POLLIN};
	while (poll(&end, 1, 0) == 0) {
		int status;
		pid_t child = vfork();
		if (child == 0) {
			usleep(500);
			execl("/bin/true", "true", (char *)0);
			_exit(9);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
			return printf("a child failed\n") < 0;
	}
	puts("all children ended well");
	return 0;
}

int main(int argc, char **argv) {
	char byte;
	puts("ready");
	fflush(stdout);
	if (argc > 1)
		return spawn();
	if (vfork() == 0)
		_exit(read(0, &byte, 1) == 1 ? 7 : 8);
	int status;
	wait(&status);
	printf("child said %d\n", WEXITSTATUS(status));
	fflush(stdout);
	read(0, &byte, 1);
	return 0;
}
