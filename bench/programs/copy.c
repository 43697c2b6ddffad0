/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Copies from /dev/zero to /dev/null, by functions that can be traced, and that have hooks if an argument asks for them.
 * It waits for a line first. It prints the nanoseconds of a piece, and the seconds of all pieces of a size: in the
 * program, in the kernel, and by the clock. */
#include <fcntl.h>
#include <nopal_probe.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "measure.h"

#define KEPT __attribute__((noinline, noclone, patchable_function_entry(5)))

static char buffer[1 << 20];

KEPT long copy_read(int from, size_t bytes)
{
	return read(from, buffer, bytes);
}

KEPT long copy_write(int to, size_t bytes)
{
	return write(to, buffer, bytes);
}

KEPT long copy_piece(int from, int to, size_t bytes)
{
	return copy_read(from, bytes) == copy_write(to, bytes);
}

static void hook(unsigned long ip, unsigned long parent)
{
	(void)ip;
	(void)parent;
}

static double least(int from, int to, size_t bytes, long pieces)
{
	double least = 1e18;
	for (int round = 0; round < 20; round++) {
		double begin = nanoseconds();
		for (long i = 0; i < pieces; i++)
			if (!copy_piece(from, to, bytes))
				exit(1);
		double ns = (nanoseconds() - begin) / (double)pieces;
		least = ns < least ? ns : least;
	}
	return least;
}

static double seconds(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static void copy(const char *size, int from, int to, size_t bytes, long pieces)
{
	struct rusage before, after;
	getrusage(RUSAGE_SELF, &before);
	double begin = nanoseconds();
	printf("%s %.3f\n", size, least(from, to, bytes, pieces));
	double real = (nanoseconds() - begin) / 1e9;
	getrusage(RUSAGE_SELF, &after);
	printf("%s_user %.6f\n", size, seconds(after.ru_utime) - seconds(before.ru_utime));
	printf("%s_system %.6f\n", size, seconds(after.ru_stime) - seconds(before.ru_stime));
	printf("%s_real %.6f\n", size, real);
}

int main(int count, char **arguments)
{
	(void)arguments;
	int from = open("/dev/zero", O_RDONLY), to = open("/dev/null", O_WRONLY);
	if (from < 0 || to < 0)
		return 1;
	fprintf(stderr, "ready\n");
	getchar();
	if (count > 1 && nopal_hook("copy_*", hook) < 0) {
		fprintf(stderr, "%s\n", nopal_error());
		return 1;
	}
	copy("byte", from, to, 1, 50000);
	copy("megabyte", from, to, sizeof buffer, 2000);
	return 0;
}
