// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Connects functions to the markers of nopal_markers.ko while it is loaded, and tells what they saw in the kernel's log.
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

static int __init begin(void)
{
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
	int first = nopal_disconnect("test_met", on_met, &calls), again = nopal_disconnect("test_met", on_met, &calls);

	pr_info("nopal_connected: disconnected %d, again %d, %lld calls, sum %lld\n", first, again, atomic64_read(&calls),
		atomic64_read(&sum));
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("functions connected to markers, for tests");
