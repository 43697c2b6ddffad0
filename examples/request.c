/* A pipeline of three processes: request ask 20 | request serve | request note. `ask 20 41` begins with number 41.
 * The first process begins to ask after a line, or the end, of its input; the second works; the third notes the answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef LOOK_UP
#define LOOK_UP 1000
#endif

#define FUNCTION __attribute__((noinline, noclone)) static

FUNCTION void ask(long number)
{
	printf("%ld\n", number);
	fflush(stdout);
}

FUNCTION void look_up(long number)
{
	usleep(number % 10 == 7 ? 50000 : LOOK_UP);
}

FUNCTION void serve(long number)
{
	look_up(number);
	printf("%ld\n", number);
	fflush(stdout);
}

FUNCTION void note(long number)
{
	fprintf(stderr, "%ld is answered\n", number);
}

int main(int count, char **words)
{
	char line[32];
	const char *role = count > 1 ? words[1] : "";
	fprintf(stderr, "%s %d\n", role, (int)getpid());
	if (!strcmp(role, "ask")) {
		fgets(line, sizeof line, stdin);
		long first = count > 3 ? atol(words[3]) : 1;
		for (long number = first; number < first + atol(count > 2 ? words[2] : "20"); number++) {
			ask(number);
			usleep(3000);
		}
	}
	while (strcmp(role, "ask") && fgets(line, sizeof line, stdin)) {
		if (!strcmp(role, "serve"))
			serve(atol(line));
		else
			note(atol(line));
	}
	return 0;
}
