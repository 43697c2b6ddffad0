/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * As much of a kernel as its latency tracers look at: processors with interrupts and preemption that are on or off, and
 * tasks with priorities. It reports to the tracers the events that a kernel's own hooks would report.
 */
#ifndef NOPAL_SIM_KERNEL_H
#define NOPAL_SIM_KERNEL_H

#include "latency.h"

#define SIM_KERNEL_PROCESSORS 2
#define SIM_TASKS 4                     /* task 0 is the idle task of every processor */
#define SIM_IDLE_PRIORITY 140           /* as in Linux, a lower number is more urgent */

/* The tracers of kernels. */
enum sim_kernel_tracer { SIM_IRQSOFF, SIM_PREEMPTOFF, SIM_PREEMPTIRQSOFF, SIM_WAKEUP, SIM_KERNEL_TRACERS };
extern const struct nopal_tracer sim_kernel_tracers[SIM_KERNEL_TRACERS];

struct sim_kernel {
	uint64_t clock;
	struct {
		uint32_t irqs_off;      /* the depth of nested switching off */
		uint32_t preempt_off;
		uint32_t task;
	} processors[SIM_KERNEL_PROCESSORS];
	uint32_t priorities[SIM_TASKS];
	struct nopal_latency latency[SIM_KERNEL_TRACERS];
	struct nopal_latency_own own[SIM_KERNEL_TRACERS][SIM_KERNEL_PROCESSORS];
};

extern struct sim_kernel sim_kernel;

void sim_kernel_begin(void);

/* Events on a processor. Pairs nest. */
void sim_irqs_off(uint32_t processor);
void sim_irqs_on(uint32_t processor);
void sim_preempt_off(uint32_t processor);
void sim_preempt_on(uint32_t processor);
void sim_wake(uint32_t processor, uint32_t task);       /* made runnable, to run on this processor */
void sim_run(uint32_t processor, uint32_t task);        /* gets the processor */

/* Loads the worst case of a tracer over all processors; false: there is none. */
bool sim_kernel_worst(enum sim_kernel_tracer tracer, struct nopal_case *worst);

#endif
