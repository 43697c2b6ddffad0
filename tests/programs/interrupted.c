/* Waits for SIGINT. "handles" ends with status 3 after the first one, "dies" is ended by it. */
#include "hard.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile int got;

KEPT static int work(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static void on_interrupt(int signal)
{
	(void)signal;
	got++;
}

int main(int count, char **words)
{
	CHECK(count == 2);
	if (strcmp(words[1], "handles") == 0)
		signal(SIGINT, on_interrupt);
	for (int i = 0; i < 1000; i++)
		work(i);
	printf("calls: 1000 work\nready\n");
	fflush(stdout);
	/* A signal right before the sleep does not end it. */
	while (!got)
		sleep(1);
	puts("interrupted");
	return 3;
}
