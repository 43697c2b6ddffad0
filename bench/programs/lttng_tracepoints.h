/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER nopal_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "lttng_tracepoints.h"
#if !defined(LTTNG_TRACEPOINTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_TRACEPOINTS_H
#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(nopal_bench, on, LTTNG_UST_TP_ARGS(long, trap, void *, address),
			   LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(long, trap, trap)
						       lttng_ust_field_integer_hex(unsigned long, address,
										   (unsigned long)address)))

#endif
#include <lttng/tracepoint-event.h>
