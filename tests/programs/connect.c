/* Connects functions to markers that other threads pass meanwhile, and disconnects them. */
#include "hard.h"
#include <errno.h>
#include <nopal.h>
#include <nopal_probe.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct state {
	long hits;
	int over;       /* disconnected: nothing may hit any more */
	long wrong;
};

static volatile int stop;

KEPT static double leaf(double x, long a, long b)
{
	long kept[6] = { a, b, a + b, a ^ b, a - b, a | b };
	NOPAL_MARK(leaf, "a=%ld b=%ld x=%f", a, b, x);
	return x * 2 + (double)(kept[a & 3] + kept[b & 3]);
}

static void *pass(void *argument)
{
	long *passed = argument;
	for (long i = 0; !stop; i++) {
		long a = i & 1, b = 2;
		long kept[6] = { a, b, a + b, a ^ b, a - b, a | b };
		CHECK(leaf(1.5, a, b) == 1.5 * 2 + (double)(kept[a & 3] + kept[b & 3]));
		NOPAL_MARK_GENERIC(tested, "i=%ld", i);
		++*passed;
	}
	return NULL;
}

static void probe(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	struct state *state = data;
	double x;
	memcpy(&x, &values[2], sizeof x);
	/* Uses vector registers, which the marker does not expect to change. */
	volatile double sum[4] = { 0 };
	for (int i = 0; i < 4; i++)
		sum[i] = x * i + 0.5;
	if (values[0] > 1 || values[1] != 2 || x != 1.5 || strcmp(marker->name, "leaf") || state->over)
		__atomic_add_fetch(&state->wrong, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&state->hits, 1, __ATOMIC_RELAXED);
}

static void second_probe(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)values;
	CHECK(strcmp(marker->format, "a=%ld b=%ld x=%f") == 0);
	__atomic_add_fetch((long *)data, 1, __ATOMIC_RELAXED);
}

static void on_tested(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)marker;
	(void)values;
	__atomic_add_fetch((long *)data, 1, __ATOMIC_RELAXED);
}

static void recursive(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)marker;
	(void)values;
	++*(long *)data;
	CHECK(nopal_disconnect("again", recursive, data) == -EDEADLK);
	NOPAL_MARK(again, "");
}

static void reach(long *hits, long wanted)
{
	while (__atomic_load_n(hits, __ATOMIC_RELAXED) < wanted)
		usleep(100);
}

int main(int count, char **arguments)
{
	int rounds = count > 1 ? atoi(arguments[1]) : 100;
	struct state state = { 0 };
	long other = 0, tested = 0, depth = 0;
	CHECK(nopal_connect("leav", NULL, probe, &state) == -ENOENT);
	CHECK(strstr(nopal_error(), "no marker \"leav\"; the nearest is leaf"));
	CHECK(nopal_connect("something_else", NULL, probe, &state) == -ENOENT);
	CHECK(!strcmp(nopal_error(), "no marker \"something_else\""));
	CHECK(nopal_connect("lea*", NULL, probe, &state) == -ENOENT);
	CHECK(!strcmp(nopal_error(), "no marker \"lea*\"; the nearest is leaf"));
	CHECK(nopal_connect("", NULL, probe, &state) == -ENOENT);
	CHECK(!strcmp(nopal_error(), "no marker \"\": expected the name of one"));
	CHECK(nopal_connect("leaf", "a=%d", probe, &state) == -EINVAL);
	CHECK(strstr(nopal_error(), "has the format \"a=%ld b=%ld x=%f\", not \"a=%d\""));
	CHECK(nopal_disconnect("leaf", probe, &state) == -ENOENT);

	pthread_t threads[2];
	long passed[2] = { 0 };
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, pass, &passed[i]) == 0);
	for (int round = 0; round < rounds; round++) {
		state.over = 0;
		long before = state.hits;
		CHECK(nopal_connect("leaf", round & 1 ? "a=%ld b=%ld x=%f" : NULL, probe, &state) == 0);
		CHECK(nopal_connect("leaf", NULL, probe, &state) == -EEXIST);
		reach(&state.hits, before + 10);
		before = other;
		CHECK(nopal_connect("leaf", NULL, second_probe, &other) == 0);
		reach(&other, before + 10);
		CHECK(nopal_disconnect("leaf", probe, &state) == 0);
		state.over = 1;
		before = other;
		reach(&other, before + 10);
		CHECK(nopal_disconnect("leaf", second_probe, &other) == 0);
	}
	CHECK(nopal_connect("tested", "i=%ld", on_tested, &tested) == 0);
	reach(&tested, 10);
	CHECK(nopal_disconnect("tested", on_tested, &tested) == 0);
	long hits = state.hits, last = passed[0];
	reach(&passed[0], last + 1000);
	CHECK(state.hits == hits && state.wrong == 0);

	CHECK(nopal_connect("again", "", recursive, &depth) == 0);
	NOPAL_MARK(again, "");
	CHECK(depth == 8 && nopal_cut_off() == 1);
	CHECK(nopal_disconnect("again", recursive, &depth) == 0);
	NOPAL_MARK(again, "");
	CHECK(depth == 8);

	/* The function stays connected: a recording adds itself. */
	CHECK(nopal_connect("leaf", NULL, second_probe, &other) == 0);
	stop = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	puts("done");
	return 0;
}
