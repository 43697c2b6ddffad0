// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Connects functions to the markers of nopal_markers.ko while it is loaded, and logs what they saw; with probe=empty,
 * direct or parsing, connects only such a function to the marker whose cost is measured.
 */
#include <linux/atomic.h>
#include <linux/module.h>
#include "nopal_probe.h"

static atomic64_t calls, sum;

static void on_met(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	atomic64_inc(data);
	atomic64_add(values[0], &sum);
}

static void empty(void *data, const struct nopal_description *marker, const uint64_t *values)
{
}

static int number;
static void *pointer;

static void direct(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	WRITE_ONCE(number, values[0]);
	WRITE_ONCE(pointer, (void *)values[1]);
}

/* Derives the types of its values from the format, each time. */
static void parsing(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	const char *at;

	for (at = marker->format; (at = strchr(at, '%')); values++) {
		at += strspn(at + 1, "#0- +.123456789hlqjzt") + 1;
		if (*at == 'd')
			WRITE_ONCE(number, *values);
		else if (*at == 'p')
			WRITE_ONCE(pointer, (void *)*values);
	}
}

static char *probe;
module_param(probe, charp, 0);

static const struct {
	const char *name;
	nopal_probe *probe;
} probes[] = { { "empty", empty }, { "direct", direct }, { "parsing", parsing } };

static nopal_probe *chosen(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(probe, probes[i].name))
			return probes[i].probe;
	return NULL;
}

static int __init begin(void)
{
	if (probe)
		return chosen() ? nopal_connect("test_measured", NULL, chosen(), NULL) : -EINVAL;

	const char *format = "number=%u device=%s";
	int unknown = nopal_connect("test_unknown", NULL, on_met, &calls);
	int other = nopal_connect("test_met", "number=%d", on_met, &calls);
	int first = nopal_connect("test_met", format, on_met, &calls);
	int again = nopal_connect("test_met", format, on_met, &calls);

	pr_info("nopal_connected: unknown %d, other format %d, connected %d, again %d\n", unknown, other, first, again);
	return first;
}

static void __exit end(void)
{
	if (probe) {
		nopal_disconnect("test_measured", chosen(), NULL);
		return;
	}

	int first = nopal_disconnect("test_met", on_met, &calls), again = nopal_disconnect("test_met", on_met, &calls);

	pr_info("nopal_connected: disconnected %d, again %d, %lld calls, sum %lld\n", first, again, atomic64_read(&calls),
		atomic64_read(&sum));
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("functions connected to markers, for tests");
