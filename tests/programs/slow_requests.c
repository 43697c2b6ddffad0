// A request passes through three processes, one after the other: asked in the first, served in the second, noted in the
// third, for whose answer the first waits. Two of ten are slow in the second: one computes, one sleeps. The last one is
// never noted.
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone)) static

enum { COMPUTED = 3, SLEPT_IN = 7, SWALLOWED = 11 };

FUNCTION void ask(long number, int to)
{
	if (write(to, &number, sizeof number) != sizeof number)
		_exit(1);
}

// Takes 200 ms of processor time.
FUNCTION void grind(void)
{
	struct timespec now;
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	while (now.tv_sec == 0 && now.tv_nsec < 200 * 1000 * 1000);
}

FUNCTION void doze(void)
{
	usleep(1000 * 1000);
}

FUNCTION void serve(long number, int to)
{
	if (number == COMPUTED)
		grind();
	if (number == SLEPT_IN)
		doze();
	if (number != SWALLOWED && write(to, &number, sizeof number) != sizeof number)
		_exit(1);
}

// The code differs from ask: the compiler would merge equal functions.
FUNCTION void note(long number, int to)
{
	if (write(to, &number, sizeof number) != sizeof number)
		_exit(2);
}

// Passes on its input, in a process of its own.
static void hand_on(void (*handle)(long, int), int from, int to)
{
	long number;
	while (read(from, &number, sizeof number) == sizeof number)
		handle(number, to);
	_exit(0);
}

int main(void)
{
	int asked[2], served[2], noted[2];
	long answer;
	if (pipe(asked) || pipe(served) || pipe(noted))
		return 1;
	int second = fork();
	if (second == 0) {
		close(asked[1]);
		hand_on(serve, asked[0], served[1]);
	}
	close(served[1]);
	int third = fork();
	if (third == 0) {
		close(asked[1]);
		hand_on(note, served[0], noted[1]);
	}
	for (long number = 1; number <= 10; number++) {
		// The second process waits for it by then.
		usleep(10 * 1000);
		ask(number, asked[1]);
		if (read(noted[0], &answer, sizeof answer) != sizeof answer || answer != number)
			return 1;
	}
	ask(SWALLOWED, asked[1]);
	close(asked[1]);
	while (wait(0) > 0)
		;
	printf("%d %d %d\n", (int)getpid(), second, third);
	return 0;
}
