// The only thread runs on a stack of the program's own, computes, sleeps, and checks its results. Prints "ready" and its
// number, and at the end of its input whether all was right.
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { SIZE = 1 << 18 };

static ucontext_t first, own;
static int wrong;

__attribute__((noinline)) double third(double a, double b) {
	return a * 3 + b;
}

__attribute__((noinline)) double second(double a, int depth) {
	return depth ? third(second(a, depth - 1), 1) : a;
}

static int input_has_ended(void) {
	char byte;
	struct pollfd input = {.fd = 0, .events = POLLIN};
	return poll(&input, 1, 0) > 0 && read(0, &byte, 1) == 0;
}

static void work(void) {
	double expected = 0;
	for (int i = 0; i < 20; i++)
		expected = expected * 3 + 1;
	while (!input_has_ended()) {
		for (int i = 0; i < 100; i++)
			wrong |= second(0, 20) != expected;
		wrong |= nanosleep(&(struct timespec){0, 100000}, 0) != 0;
	}
}

int main(void) {
	char *stack = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED || getcontext(&own))
		return 1;
	own.uc_stack.ss_sp = stack;
	own.uc_stack.ss_size = SIZE;
	own.uc_link = &first;
	makecontext(&own, work, 0);
	printf("ready %d\n", getpid());
	fflush(stdout);
	swapcontext(&first, &own);
	printf("%s\n", wrong ? "wrong" : "right");
	return wrong ? 1 : 37;
}
