/* Functions that are declared to change general registers only, and some that are wrongly declared so. */
#include "hard.h"
#include <nopal.h>
#include <nopal_probe.h>
#include <string.h>

static long sum;
static double numbers[4];

NOPAL_PROBE(adds)(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)marker;
	sum += (long)values[0];
	++*(long *)data;
}

NOPAL_GENERAL KEPT static void add(long number)
{
	sum += number;
}

NOPAL_PROBE(calls_general)(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)marker;
	add((long)values[0]);
	add(1);
	++*(long *)data;
}

KEPT static void in_vectors(long number)
{
	for (int i = 0; i < 4; i++)
		numbers[i] += (double)number;
}

NOPAL_PROBE(computes)(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	(void)marker;
	in_vectors((long)values[0]);
}

NOPAL_PROBE(calls_libc)(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	sum += (long)strlen(marker->name) + (long)values[0];
}

static void (*volatile pointer)(long) = in_vectors;

NOPAL_PROBE(through_a_pointer)(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	(void)marker;
	pointer((long)values[0]);
}

int main(int count, char **arguments)
{
	long hits = 0;
	(void)arguments;
	/* These connections are never made at run time: they would change registers that the marker keeps. */
	if (count > 1) {
		nopal_connect("met", 0, computes, 0);
		nopal_connect("met", 0, calls_libc, 0);
		nopal_connect("met", 0, through_a_pointer, 0);
	}
	CHECK(nopal_connect("met", "number=%d", adds, &hits) == 0);
	CHECK(nopal_connect("met", "number=%d", calls_general, &hits) == 0);
	for (int i = 0; i < 10; i++)
		NOPAL_MARK(met, "number=%d", 5);
	CHECK(hits == 20 && sum == 110);
	CHECK(nopal_disconnect("met", adds, &hits) == 0);
	NOPAL_MARK(met, "number=%d", 5);
	CHECK(hits == 21 && sum == 116);
	puts("done");
	return 0;
}
