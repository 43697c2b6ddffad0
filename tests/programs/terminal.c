/* Prints the state of its terminal, and asks a question on it. */
#include "hard.h"
#include <string.h>
#include <termios.h>
#include <unistd.h>

KEPT static int ask(char *name, size_t size)
{
	printf("what is your name?\n");
	fflush(stdout);
	return fgets(name, (int)size, stdin) != NULL;
}

int main(void)
{
	struct termios modes;
	char name[64];
	printf("terminals %d %d %d\n", isatty(0), isatty(1), isatty(2));
	CHECK(tcgetattr(0, &modes) == 0);
	printf("modes %x %x %x\n", modes.c_iflag, modes.c_oflag, modes.c_lflag);
	printf("in the foreground %d\n", tcgetpgrp(0) == getpgrp());
	printf("session %d\n", tcgetsid(0) == getsid(0));
	modes.c_lflag &= ~(tcflag_t)ECHO;
	CHECK(tcsetattr(0, TCSANOW, &modes) == 0);
	CHECK(ask(name, sizeof name));
	modes.c_lflag |= ECHO;
	CHECK(tcsetattr(0, TCSANOW, &modes) == 0);
	printf("hello %s", name);
	return 0;
}
