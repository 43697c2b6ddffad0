/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A tracepoint of LTTng-UST with the fields of the marker `on` in markers.c, measured in the same way. Prints a name and a
 * figure a line. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_tracepoints.h"

#include "loops.h"

LOOP(empty, )
LOOP(lttng_on, lttng_ust_tracepoint(nopal_bench, on, i, pointer))

int main(void)
{
	SHOW(empty, TURNS);
	SHOW(lttng_on, TURNS);
	return 0;
}
