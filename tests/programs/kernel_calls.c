/* Calls the kernel a known number of times in a function, and a tenth as often in the same function of a child. With 0,
 * calls it for ever. */
#define _GNU_SOURCE
#include "hard.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

KEPT static void ask(int times)
{
	for (int i = 0; i < times; i++)
		syscall(SYS_getppid);
	EFFECT();
}

KEPT static void pass(int times)
{
	for (int i = 0; i < times; i++)
		syscall(SYS_getuid);
	EFFECT();
}

int main(int count, char **words)
{
	CHECK(count == 2);
	int times = atoi(words[1]);
	while (times == 0) {
		ask(1);
		usleep(10000);
	}
	ask(times);
	pass(times);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		ask(times / 10);
		_exit(0);
	}
	CHECK(waitpid(child, NULL, 0) == child);
	printf("%d\n", times);
	return 0;
}
