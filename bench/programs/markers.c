/* What markers cost, as the seeds 000 and 004 measured it: cycles of the time stamp counter for one turn of a loop, the
 * least of many runs. Prints a name and a figure a line. */
#include <nopal.h>
#include <nopal_probe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#define TURNS 20000
#define RUNS 400

static double least(void (*loop)(long), long turns)
{
	double least = 1e9;
	for (int run = 0; run < RUNS; run++) {
		unsigned long long before = __rdtsc();
		loop(turns);
		double cycles = (double)(__rdtsc() - before) / (double)turns;
		least = cycles < least ? cycles : least;
	}
	return least;
}

#define LOOP(name, ...)                                                                                              \
	__attribute__((noinline)) static void name(long turns)                                                      \
	{                                                                                                            \
		for (long i = 0; i < turns; i++) {                                                                  \
			__asm__ volatile("" : "+r"(i));                                                             \
			__VA_ARGS__;                                                                                \
		}                                                                                                    \
	}

char from[4096], to[4096];        /* seen from outside, so that copies count */
static unsigned long long sink;
static void *pointer = &sink;

LOOP(empty, )
LOOP(clock_read, sink = __rdtsc())
LOOP(off, NOPAL_MARK(off, "trap=%ld address=%p", i, pointer))
LOOP(generic_off, NOPAL_MARK_GENERIC(generic_off, "trap=%ld address=%p", i, pointer))
LOOP(on, NOPAL_MARK(on, "trap=%ld address=%p", i, pointer))
LOOP(generic_on, NOPAL_MARK_GENERIC(generic_on, "trap=%ld address=%p", i, pointer))
LOOP(text_on, NOPAL_MARK(text_on, "number=%ld text=%s", i, "sixteen letters."))
LOOP(probed, NOPAL_MARK(probed, "trap=%ld address=%p", i, pointer))

LOOP(copy, memcpy(to, from, sizeof to); __asm__ volatile("" ::: "memory"))
LOOP(copy_off, NOPAL_MARK(copy_off, "trap=%ld address=%p", i, pointer); memcpy(to, from, sizeof to);
     __asm__ volatile("" ::: "memory"))
LOOP(copy_generic, NOPAL_MARK_GENERIC(copy_generic, "trap=%ld address=%p", i, pointer); memcpy(to, from, sizeof to);
     __asm__ volatile("" ::: "memory"))

static void empty_probe(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	(void)marker;
	(void)values;
}

static long value;
static void *address;

static void direct_probe(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	(void)marker;
	value = (long)values[0];
	address = (void *)values[1];
}

/* Finds out what its values are from the format, each time. */
static void parsing_probe(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	for (const char *at = marker->format; (at = strchr(at, '%')); at++) {
		at += strspn(at + 1, "#0- +.123456789hlqjzt") + 1;
		switch (*at) {
		case 'd':
			value = (long)*values++;
			break;
		case 'p':
			address = (void *)*values++;
			break;
		}
	}
}

static double with(nopal_probe *probe)
{
	if (nopal_connect("probed", 0, probe, 0)) {
		fprintf(stderr, "%s\n", nopal_error());
		exit(1);
	}
	double cycles = least(probed, TURNS);
	nopal_disconnect("probed", probe, 0);
	return cycles;
}

int main(void)
{
#define SHOW(name, turns) printf(#name " %.3f\n", least(name, turns))
	SHOW(empty, TURNS);
	SHOW(clock_read, TURNS);
	SHOW(off, TURNS);
	SHOW(generic_off, TURNS);
	SHOW(copy, 200);
	SHOW(copy_off, 200);
	SHOW(copy_generic, 200);
	/* In a recording, these are on. */
	SHOW(on, TURNS);
	SHOW(generic_on, TURNS);
	SHOW(text_on, TURNS);
	printf("empty_probe %.3f\n", with(empty_probe));
	printf("direct_probe %.3f\n", with(direct_probe));
	printf("parsing_probe %.3f\n", with(parsing_probe));
	return 0;
}
