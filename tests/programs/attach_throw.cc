/* Throws through frames in some threads, again and again, and catches in the outermost; ends when its input does. */
#include "hard.h"
#include <pthread.h>
#include <stdexcept>
#include <unistd.h>

static volatile int stop;

struct Leaves {
	long *count;
	KEPT explicit Leaves(long *to) : count(to) {}
	KEPT ~Leaves() { ++*count; }
};

KEPT static long thrower(long left, long *left_frames)
{
	Leaves leaves(left_frames);
	if (!left)
		throw std::runtime_error("thrown");
	return RETURNED(thrower(left - 1, left_frames)) + 1;
}

KEPT static long catcher(void)
{
	long left = 0;
	try {
		thrower(9, &left);
	} catch (const std::runtime_error &) {
		return left;
	}
	return 0;
}

static void *run(void *unused)
{
	while (!stop)
		CHECK(catcher() == 10);
	return unused;
}

int main()
{
	pthread_t threads[3];
	for (auto &thread : threads)
		CHECK(pthread_create(&thread, nullptr, run, nullptr) == 0);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	stop = 1;
	for (auto &thread : threads)
		CHECK(pthread_join(thread, nullptr) == 0);
	puts("end");
	return 7;
}
