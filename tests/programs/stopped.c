/* Obeys the lines `open`, `work` and `close`: a call of outer() begins, makes long calls, and ends. At `exec`, the
 * program executes itself. */
#include "hard.h"
#include <unistd.h>

enum { PARTS = 20, PART_MICROSECONDS = 10000 };

static void done(void)
{
	puts("done");
	fflush(stdout);
}

KEPT static void part(void)
{
	usleep(PART_MICROSECONDS);
	EFFECT();
}

KEPT static void outer(void)
{
	char line[32];
	done();
	while (fgets(line, sizeof line, stdin) && line[0] == 'w') {
		for (int i = 0; i < PARTS; i++)
			part();
		done();
	}
	EFFECT();
}

int main(int count, char **words)
{
	(void)count;
	char line[32];
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (line[0] == 'e')
			execv("/proc/self/exe", words);
		outer();
		done();
	}
	return 5;
}
