/* A recursion that calls faster than records are written: twice as deep each time, with rests in between. It prints the
 * number of its functions' calls and its duration. Arguments: rounds, calls of each. */
#include "hard.h"
#include <time.h>
#include <unistd.h>

static long climbs, leaves;

KEPT static long leaf(long value)
{
	leaves++;
	return value + 1;
}

KEPT static long climb(long depth)
{
	climbs++;
	long value = RETURNED(leaf(depth));
	return depth ? RETURNED(climb(depth - 1)) + value : value;
}

KEPT static void round_of(long calls)
{
	long depth = 1, made = 0;
	while (made < calls) {
		climb(depth);
		made += 2 * (depth + 1);
		depth = depth < 500 ? 2 * depth : 1;
	}
}

static long now(void)
{
	struct timespec time;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(int count, char **words)
{
	CHECK(count == 3);
	long begin = now(), rounds = atol(words[1]);
	for (long i = 0; i < rounds; i++) {
		round_of(atol(words[2]));
		usleep(20000);
	}
	printf("calls: %ld climb\ncalls: %ld leaf\ncalls: %ld round_of\n", climbs, leaves, rounds);
	printf("elapsed %ld\n", now() - begin);
	return 0;
}
