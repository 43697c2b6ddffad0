// A parent that vfork holds until its child has read a byte from standard input.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
	char byte;
	puts("ready");
	fflush(stdout);
	if (vfork() == 0)
		_exit(read(0, &byte, 1) == 1 ? 7 : 8);
	int status;
	wait(&status);
	printf("child said %d\n", WEXITSTATUS(status));
	fflush(stdout);
	read(0, &byte, 1);
	return 0;
}
