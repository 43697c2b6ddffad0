// Uncaught exceptions: "noexcept" reaches a function that promised not to throw, "uncaught" finds no handler at all,
// "handler" has its own terminate handler, "thread" does not catch on a thread.
#include "hard.h"
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>

KEPT static int thrower(int left)
{
	if (left == 0)
		throw std::runtime_error("nobody catches this");
	return RETURNED(thrower(left - 1)) + 1;
}

KEPT static int promises(int n) noexcept { return RETURNED(thrower(n)) + 1; }

KEPT static void last()
{
	puts("terminated");
	fflush(stdout);
	_Exit(6);
}

int main(int count, char **words)
{
	CHECK(count == 2);
	printf("calls: 11 thrower(int)\n");
	fflush(stdout);
	if (strcmp(words[1], "noexcept") == 0) {
		try {
			promises(10);
		} catch (...) {
			puts("caught what must not be");
		}
	} else if (strcmp(words[1], "handler") == 0) {
		std::set_terminate(last);
		promises(10);
	} else if (strcmp(words[1], "thread") == 0) {
		std::thread(thrower, 10).join();
	} else {
		thrower(10);
	}
	return 0;
}
