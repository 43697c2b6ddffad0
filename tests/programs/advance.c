/* Connects functions to markers of a library before it is loaded, lists markers, and closes and loads the library again,
 * also within a probe. Arguments: the library marking.c, and how often. */
#include "hard.h"
#include <dlfcn.h>
#include <errno.h>
#include <nopal.h>
#include <nopal_probe.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *path;
static int rounds;
static long turns, begins, loads;

static void on_turn(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	CHECK(strcmp(marker->name, "plugin_turn") == 0 && values[0] < 10);
	__atomic_add_fetch((long *)data, 1, __ATOMIC_RELAXED);
}

static void count(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)marker;
	(void)values;
	__atomic_add_fetch((long *)data, 1, __ATOMIC_RELAXED);
}

static int callback(int n)
{
	return 2 * n;
}

static void use(void *library)
{
	int (*entry)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "library_entry");
	CHECK(entry && entry(callback, 10) == 140);
}

static void load_and_use(void)
{
	void *library = dlopen(path, RTLD_NOW);
	CHECK(library);
	use(library);
	CHECK(dlclose(library) == 0);
}

/* ---- the list ---- */

struct expected {
	const char *name;
	int seen, on, waits;
	size_t count;
	const void *data;
	char library[32], format[32];
};

static void look(void *data, const struct nopal_listed_marker *marker)
{
	struct expected *expected = data;
	if (strcmp(marker->marker.name, expected->name))
		return;
	expected->seen++;
	expected->on = marker->on;
	expected->waits = marker->waits;
	expected->count = marker->count;
	expected->data = marker->count ? marker->probes[0].data : NULL;
	CHECK(!marker->recorded);
	snprintf(expected->library, sizeof expected->library, "%s", marker->library ? marker->library : "any");
	snprintf(expected->format, sizeof expected->format, "%s", marker->marker.format ? marker->marker.format : "any");
}

static struct expected listed(const char *name)
{
	struct expected expected = { .name = name };
	CHECK(nopal_each_marker(look, &expected) == 0);
	return expected;
}

static void connect_within(void *data, const struct nopal_listed_marker *marker)
{
	if (strcmp(marker->marker.name, "own") == 0)
		CHECK(nopal_connect("own", marker->marker.format, count, data) == 0);
}

static void own(void)
{
	NOPAL_MARK(own, "a=%d", 1);
}

static void lists(void)
{
	long hits = 0;
	struct expected is = listed("own");
	CHECK(is.seen == 1 && !is.on && !is.waits && !is.count && !*is.library && !strcmp(is.format, "a=%d"));
	CHECK(nopal_each_marker(connect_within, &hits) == 0);
	is = listed("own");
	CHECK(is.on && is.count == 1 && is.data == &hits);
	own();
	CHECK(hits == 1 && nopal_disconnect("own", count, &hits) == 0);
	is = listed("own");
	CHECK(!is.on && !is.count);
}

/* ---- in advance ---- */

static void waits(void)
{
	CHECK(nopal_connect("plugin_turn", NULL, on_turn, &turns) == -ENOENT);
	CHECK(nopal_connect("plugin_turn@libmarking.so", "i=%d", on_turn, &turns) == 0);
	CHECK(nopal_connect("plugin_turn@libmarking.so", "i=%d", on_turn, &turns) == -EEXIST);
	CHECK(nopal_connect("plugin_begins@libmark*", NULL, count, &begins) == 0);
	/* Another format: this connection is left out when the library comes. */
	long never = 0;
	CHECK(nopal_connect("plugin_end@libmarking.so", "n=%ld", count, &never) == 0);
	for (int round = 1; round <= rounds; round++) {
		struct expected is = listed("plugin_turn");
		CHECK(is.seen == 1 && is.waits && !is.on && is.count == 1 && is.data == &turns);
		CHECK(!strcmp(is.library, "libmarking.so") && !strcmp(is.format, "i=%d"));
		void *library = dlopen(path, RTLD_NOW);
		CHECK(library && begins == round);
		is = listed("plugin_turn");
		CHECK(is.seen == 1 && !is.waits && is.on && is.count == 1 && is.data == &turns);
		use(library);
		CHECK(turns == 10 * round && !never);
		CHECK(dlclose(library) == 0);
	}
	CHECK(nopal_disconnect("plugin_begins@libmark*", count, &begins) == 0);
	CHECK(nopal_disconnect("plugin_begins@libmark*", count, &begins) == -ENOENT);
	CHECK(nopal_disconnect("plugin_end@libmarking.so", count, &never) == 0);
	load_and_use();
	CHECK(turns == 10 * (rounds + 1) && begins == rounds);
	/* The name exists already: it counts in later libraries too. */
	void *library = dlopen(path, RTLD_NOW);
	CHECK(nopal_connect("plugin_end", "n=%d", count, &begins) == 0);
	CHECK(dlclose(library) == 0);
	load_and_use();
	CHECK(begins == rounds + 1 && turns == 10 * (rounds + 2));
	CHECK(nopal_disconnect("plugin_end", count, &begins) == 0);
}

/* ---- libraries are loaded within a probe, while connections change ---- */

static volatile int stop;

static void loads_library(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)marker;
	(void)values;
	load_and_use();
	__atomic_add_fetch((long *)data, 1, __ATOMIC_RELAXED);
}

KEPT static void loading(void)
{
	NOPAL_MARK(loading, "");
}

static void *pass(void *unused)
{
	(void)unused;
	while (!stop)
		loading();
	return NULL;
}

static void *load(void *unused)
{
	(void)unused;
	while (!stop)
		load_and_use();
	return NULL;
}

static void within_probes(void)
{
	pthread_t threads[3];
	long other = 0, third = 0;
	CHECK(nopal_connect("loading", "", loads_library, &loads) == 0);
	CHECK(pthread_create(&threads[0], NULL, pass, NULL) == 0);
	CHECK(pthread_create(&threads[1], NULL, pass, NULL) == 0);
	CHECK(pthread_create(&threads[2], NULL, load, NULL) == 0);
	for (int round = 0; round < rounds; round++) {
		long before = __atomic_load_n(&loads, __ATOMIC_RELAXED);
		CHECK(nopal_connect("loading", "", count, &other) == 0);
		CHECK(nopal_connect("plugin_end@libmarking.so", "n=%d", count, &third) == 0);
		CHECK(nopal_disconnect("loading", count, &other) == 0);
		CHECK(nopal_disconnect("plugin_end@libmarking.so", count, &third) == 0);
		while (__atomic_load_n(&loads, __ATOMIC_RELAXED) == before)
			usleep(100);
	}
	CHECK(nopal_disconnect("loading", loads_library, &loads) == 0);
	stop = 1;
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(loads >= rounds);
}

int main(int words, char **arguments)
{
	CHECK(words == 3);
	path = arguments[1];
	rounds = atoi(arguments[2]);
	lists();
	waits();
	within_probes();
	CHECK(nopal_disconnect("plugin_turn@libmarking.so", on_turn, &turns) == 0);
	puts("done");
	return 0;
}
