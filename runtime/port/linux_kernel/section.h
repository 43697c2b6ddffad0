/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * Shared by sections.c, latency.c and section.S.
 */
#ifndef NOPAL_SECTION_H
#define NOPAL_SECTION_H

#include "kernels.h"

/* The amounts added to the preemption count, and taken from it: by a lock; by a softirq; by both; by an interrupt. */
#define NOPAL_SECTION_AMOUNTS 1, 0x100, 0x200, 0x201, NOPAL_PREEMPT_COUNT_INTERRUPT

/* struct nopal_section, in bytes */
#define NOPAL_SECTION_SINCE 0
#define NOPAL_SECTION_FROM 8
#define NOPAL_SECTION_LIMIT 16
#define NOPAL_SECTION_HISTOGRAM 24

#define NOPAL_SECTION_THUNK_BYTES 256
#define NOPAL_SECTION_PLACES 5

#ifndef __ASSEMBLER__
#include <linux/percpu.h>
#include <linux/types.h>

/* The open section of a processor, and the destination of its cases. */
struct nopal_section {
	uint64_t since;         /* clock; 0: none is open, or its begin was not seen */
	uint64_t from;          /* where it began */
	uint64_t limit;         /* longer ones are kept */
	uint64_t *histogram;    /* struct nopal_histogram's buckets */
};
DECLARE_PER_CPU(struct nopal_section, nopal_section);

extern char nopal_section_thunks[], nopal_irq_out[], nopal_irq_out_joint[], nopal_irq_out_tail[],
	nopal_irq_out_tail_joint[];

/* Called at the end of a section that is longer than the limit, with interrupts or preemption off. Calls nothing. */
void nopal_section_keep(uint64_t ticks, uint64_t to);
#endif

#endif
