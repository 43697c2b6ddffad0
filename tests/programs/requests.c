/* Obeys the lines of its input, and prints "done" after each:
 *   fast N   handles N requests      slow MS   handles one that takes so many milliseconds
 *   answer N                         begin, end   call functions of these names
 * Requests pass a marker, answers a static probe. */
#include "hard.h"
#include "../../include/nopal.h"
#include <sys/sdt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

KEPT static long step(long n)
{
	EFFECT();
	return n + 1;
}

KEPT static void stall(long ms)
{
	usleep(1000 * (useconds_t)ms);
	EFFECT();
}

KEPT static long handle_request(long ms)
{
	long n = 0;
	for (int i = 0; i < 10; i++)
		n = step(n);
	if (ms)
		stall(ms);
	NOPAL_MARK(served, "ms=%ld how=%s", ms, ms ? "slow" : "fast");
	return n;
}

KEPT static int answer(int n)
{
	EFFECT();
	return -n;
}

struct question {
	int number;
	const struct worth {
		short points[2];
	} *worth;
};

KEPT static void ask(const struct question *question)
{
	(void)question;
	EFFECT();
}

KEPT static void begin_phase(void) { EFFECT(); }
KEPT static void end_phase(void) { EFFECT(); }

int main(void)
{
	char line[64];
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		char word[16] = "";
		int number = 0;
		sscanf(line, "%15s %d", word, &number);
		if (!strcmp(word, "slow"))
			CHECK(handle_request(number) == 10);
		for (int i = 0; !strcmp(word, "fast") && i < number; i++)
			CHECK(handle_request(0) == 10);
		if (!strcmp(word, "answer")) {
			struct worth worth = { { 0, (short)(number % 7) } };
			struct question question = { number, &worth };
			ask(&question);
			int answered = answer(number);
			CHECK(answered == -number);
			STAP_PROBE2(requests, answered, number, answered);
		}
		if (!strcmp(word, "begin"))
			begin_phase();
		if (!strcmp(word, "end"))
			end_phase();
		puts("done");
		fflush(stdout);
	}
	return 5;
}
