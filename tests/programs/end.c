/* Ends by the requested way: `end exit N`, `end signal N`, `end quick N`, `end abort`, `end return N`. */
#define _GNU_SOURCE
#include "hard.h"
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

KEPT static void last_words(void) { puts("at exit"); }

KEPT static int work(int n)
{
	EFFECT();
	return n + 1;
}

int main(int count, char **words)
{
	CHECK(count >= 2);
	int number = count > 2 ? atoi(words[2]) : 0;
	atexit(last_words);
	CHECK(work(1) == 2);
	printf("before the end\ncalls: 1 work\ncalls: 1 main\n");
	fflush(stdout);
	if (strcmp(words[1], "exit") == 0)
		exit(number);
	if (strcmp(words[1], "quick") == 0)
		_exit(number);
	if (strcmp(words[1], "raw") == 0)
		syscall(SYS_exit_group, number);
	if (strcmp(words[1], "abort") == 0)
		abort();
	if (strcmp(words[1], "signal") == 0) {
		/* It may have begun with the signal ignored, as below nohup. */
		signal(number, SIG_DFL);
		kill(getpid(), number);
	}
	if (strcmp(words[1], "trap") == 0)
		__builtin_trap();
	if (strcmp(words[1], "fault") == 0)
		*(volatile int *)16 = 1;
	return number;
}
