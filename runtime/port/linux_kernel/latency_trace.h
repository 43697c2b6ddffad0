/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * The worst case of a latency tracer, and its text.
 */
#ifndef NOPAL_LATENCY_TRACE_H
#define NOPAL_LATENCY_TRACE_H

#include <linux/sched.h>
#include <linux/seq_file.h>

/* A case, and its task and processor at its end. */
struct nopal_worst {
	uint64_t ticks;
	uint64_t end;           /* clock */
	uint64_t from, to;      /* where it began and ended; 0: at no place of the text */
	uint32_t thread, process;
	uint32_t processor;
	uint32_t count;         /* of preemption */
	uint32_t user, policy, urgency;         /* user id, policy, real-time priority */
	int nice;
	uint32_t bytes;         /* of what its processor has in its chunk: nopal_records_copy */
	bool irqs_off, need_resched;
	char name[TASK_COMM_LEN];
};

/* Four flags and a NUL: irqs-off, need-resched, hardirq or softirq, depth of preemption by its count. */
#define NOPAL_FLAGS_BYTES 5
void nopal_flags_write(char flags[NOPAL_FLAGS_BYTES], uint32_t count, bool irqs_off, bool need_resched);

uint64_t nopal_microseconds_of(uint64_t ticks);
/* A place, after the lock function that was called there. */
void nopal_show_place(struct seq_file *file, uint64_t place, bool with_address);

/* In the format of the kernel's latency_trace. `chunk`: of worst->bytes. Irqs are known to be off during the case, or
 * not known. Call it under nopal_lock. */
void nopal_latency_trace_show(struct seq_file *file, const char *tracer, const struct nopal_worst *worst, const void *chunk,
			      bool irqs_are_off);

/* The same of a tracer that shows the events of markers: switches of tasks alone, or all. */
void nopal_events_show(struct seq_file *file, const char *tracer, bool switches_alone);

/* Whether histograms are to be shown instead. */
bool nopal_latency_shows_histogram(void);

#endif
