/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0 */
#include "kernel.h"

#include <string.h>

struct sim_kernel sim_kernel;

enum { IRQS_OFF, IRQS_ON, PREEMPT_OFF, PREEMPT_ON, WAKEUP, RUN };
#define BIT(event) (1u << (event))

const struct nopal_tracer sim_kernel_tracers[] = {
	[SIM_IRQSOFF] = { .name = "irqsoff", .begins = BIT(IRQS_OFF), .ends = BIT(IRQS_ON), .key = NOPAL_KEY_PROCESSOR },
	[SIM_PREEMPTOFF] = { .name = "preemptoff", .begins = BIT(PREEMPT_OFF), .ends = BIT(PREEMPT_ON),
			     .key = NOPAL_KEY_PROCESSOR },
	/* From the moment that either is off until both are on again. */
	[SIM_PREEMPTIRQSOFF] = { .name = "preemptirqsoff", .begins = BIT(IRQS_OFF) | BIT(PREEMPT_OFF),
				 .ends = BIT(IRQS_ON) | BIT(PREEMPT_ON), .key = NOPAL_KEY_PROCESSOR },
	/* The time until the most urgent woken task runs. */
	[SIM_WAKEUP] = { .name = "wakeup", .begins = BIT(WAKEUP), .ends = BIT(RUN), .key = NOPAL_KEY_VALUE,
			 .nesting = NOPAL_NESTING_AGAIN, .most_urgent = true },
};

void sim_kernel_begin(void)
{
	memset(&sim_kernel, 0, sizeof sim_kernel);
	for (uint32_t tracer = 0; tracer < SIM_KERNEL_TRACERS; tracer++)
		sim_kernel.latency[tracer].tracer = &sim_kernel_tracers[tracer];
	for (uint32_t task = 0; task < SIM_TASKS; task++)
		sim_kernel.priorities[task] = SIM_IDLE_PRIORITY;
}

static void report(uint32_t processor, uint32_t number, uint32_t task)
{
	const struct nopal_event event = {
		.event = number,
		.processor = processor,
		.thread = sim_kernel.processors[processor].task,
		.rank = sim_kernel.priorities[task],
		.value = task,
		.clock = sim_kernel.clock,
	};
	struct nopal_case ended;
	for (uint32_t tracer = 0; tracer < SIM_KERNEL_TRACERS; tracer++)
		nopal_latency_event(&sim_kernel.latency[tracer], &sim_kernel.own[tracer][processor], &event, &ended);
}

/* Only changes between on and off are reported, as by kernels. */
void sim_irqs_off(uint32_t processor)
{
	if (!sim_kernel.processors[processor].irqs_off++)
		report(processor, IRQS_OFF, 0);
}

void sim_irqs_on(uint32_t processor)
{
	if (!--sim_kernel.processors[processor].irqs_off)
		report(processor, IRQS_ON, 0);
}

void sim_preempt_off(uint32_t processor)
{
	if (!sim_kernel.processors[processor].preempt_off++)
		report(processor, PREEMPT_OFF, 0);
}

void sim_preempt_on(uint32_t processor)
{
	if (!--sim_kernel.processors[processor].preempt_off)
		report(processor, PREEMPT_ON, 0);
}

/* A task that is not more urgent than the running one waits its turn; that is not a latency. */
void sim_wake(uint32_t processor, uint32_t task)
{
	if (sim_kernel.priorities[task] < sim_kernel.priorities[sim_kernel.processors[processor].task])
		report(processor, WAKEUP, task);
}

void sim_run(uint32_t processor, uint32_t task)
{
	report(processor, RUN, task);
	sim_kernel.processors[processor].task = task;
}

bool sim_kernel_worst(enum sim_kernel_tracer tracer, struct nopal_case *worst)
{
	bool any = false;
	for (uint32_t processor = 0; processor < SIM_KERNEL_PROCESSORS; processor++) {
		struct nopal_case one;
		if (nopal_latency_worst(&sim_kernel.latency[tracer], &sim_kernel.own[tracer][processor], &one) &&
		    (!any || one.end - one.begin > worst->end - worst->begin)) {
			*worst = one;
			any = true;
		}
	}
	return any;
}
