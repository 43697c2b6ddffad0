// SPDX-License-Identifier: MIT OR GPL-2.0
#include <linux/string.h>
#include <linux/tracepoint.h>
#include "module.h"

struct search {
	struct nopal_tracepoint *points;
	uint32_t count;
};

static void find(struct tracepoint *point, void *data)
{
	struct search *search = data;
	for (uint32_t i = 0; i < search->count; i++)
		if (!strcmp(point->name, search->points[i].name))
			search->points[i].point = point;
}

int nopal_tracepoints_join(struct nopal_tracepoint *points, uint32_t count)
{
	for_each_kernel_tracepoint(find, &(struct search){ points, count });
	for (uint32_t i = 0; i < count; i++) {
		int failed = points[i].point ? tracepoint_probe_register(points[i].point, points[i].probe, 0) : -ENOENT;
		if (failed) {
			pr_err("nopal: tracepoint %s cannot be joined: error %d\n", points[i].name, -failed);
			/* Who leaves all of them leaves none twice. */
			for (uint32_t later = i; later < count; later++)
				points[later].point = 0;
			nopal_tracepoints_leave(points, i);
			return failed;
		}
	}
	return 0;
}

void nopal_tracepoints_leave(struct nopal_tracepoint *points, uint32_t count)
{
	while (count--) {
		if (points[count].point)
			tracepoint_probe_unregister(points[count].point, points[count].probe, 0);
		points[count].point = 0;
	}
	tracepoint_synchronize_unregister();
}
