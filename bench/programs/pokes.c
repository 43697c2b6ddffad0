/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Measures the time that libnopal takes to change the text of 1, 100 and 50,000 places, to jumps and back to NOPs, while
 * another thread runs through them. Prints milliseconds, the median of some rounds. */
#include <nopal.h>
#include <nopal_probe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "measure.h"

#define ROUNDS 9

/* A marker with this number of places. All but the last only return when they are on. */
#define PLACES(name_, number, line_)                                                                                 \
	__asm__(".text\n"                                                                                            \
		"places_" #name_ ":\n\t"                                                                             \
		".rept " #number " - 1\n\t"                                                                          \
		NOPAL_PATCHED                                                                                        \
		NOPAL_NOTE(NOPAL_NOTE_PLACE, "7701b - ., on_" #name_ " - ., name_" #name_ " - ., file_" #name_       \
					     " - ., " #line_ ", 1")                                                 \
		".endr\n"                                                                                            \
		"on_" #name_ ":\n\t"                                                                                 \
		"ret\n\t"                                                                                            \
		".section .rodata\n"                                                                                 \
		"name_" #name_ ":\t.asciz \"" #name_ "\"\n"                                                          \
		"file_" #name_ ":\t.asciz \"pokes\"\n\t"                                                             \
		".text\n");                                                                                         \
	void places_##name_(void);                                                                                   \
	static void mark_##name_(void)                                                                               \
	{                                                                                                            \
		NOPAL_MARK(name_, "");                                                                               \
	}

#line 1001 "pokes"
PLACES(one, 1, 1001)
#line 1002 "pokes"
PLACES(hundred, 100, 1002)
#line 1003 "pokes"
PLACES(many, 50000, 1003)

static void probe(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	(void)marker;
	(void)values;
}

static atomic_bool ends;

static void *run_through(void *unused)
{
	while (!atomic_load(&ends)) {
		mark_one();
		mark_hundred();
		mark_many();
		places_hundred();
		places_many();
	}
	return unused;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void show(const char *marker)
{
	double on[ROUNDS], off[ROUNDS];
	for (int round = 0; round < ROUNDS; round++) {
		double begin = nanoseconds();
		if (nopal_connect(marker, 0, probe, 0) < 0) {
			fprintf(stderr, "%s: %s\n", marker, nopal_error());
			exit(1);
		}
		on[round] = nanoseconds() - begin;
		begin = nanoseconds();
		nopal_disconnect(marker, probe, 0);
		off[round] = nanoseconds() - begin;
	}
	qsort(on, ROUNDS, sizeof *on, by_size);
	qsort(off, ROUNDS, sizeof *off, by_size);
	printf("%s_on %.4f\n%s_off %.4f\n", marker, on[ROUNDS / 2] / 1e6, marker, off[ROUNDS / 2] / 1e6);
}

int main(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, run_through, NULL))
		return 1;
	show("one");
	show("hundred");
	show("many");
	atomic_store(&ends, 1);
	return pthread_join(thread, NULL);
}
