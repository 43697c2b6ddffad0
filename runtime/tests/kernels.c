/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The tracers of kernels, on a simulated one, beside a plain count of the ticks that they measure.
 */
#include "kernel.h"
#include "world.h"

/* The test program has one thread. */
static uint64_t seed;

static uint32_t random_below(uint32_t limit)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)(seed >> 33) % limit;
}

/* ---- Counted tick by tick: how long a state holds, on each processor ---- */

struct counted {
	uint64_t since[SIM_KERNEL_PROCESSORS];
	bool holds[SIM_KERNEL_PROCESSORS];
	uint64_t worst, cases;
};
static struct counted counted[SIM_WAKEUP];

static void look(struct counted *what, uint32_t processor, bool holds)
{
	if (holds && !what->holds[processor])
		what->since[processor] = sim_kernel.clock;
	if (!holds && what->holds[processor]) {
		uint64_t time = sim_kernel.clock - what->since[processor];
		what->worst = time > what->worst ? time : what->worst;
		what->cases++;
	}
	what->holds[processor] = holds;
}

static void look_at_all(void)
{
	for (uint32_t processor = 0; processor < SIM_KERNEL_PROCESSORS; processor++) {
		bool irqs_off = sim_kernel.processors[processor].irqs_off;
		bool preempt_off = sim_kernel.processors[processor].preempt_off;
		look(&counted[SIM_IRQSOFF], processor, irqs_off);
		look(&counted[SIM_PREEMPTOFF], processor, preempt_off);
		look(&counted[SIM_PREEMPTIRQSOFF], processor, irqs_off || preempt_off);
	}
}

/* Sections of both kinds begin and end in any order, as with spin_lock_irqsave and the sections nested in it. */
static void do_something(uint32_t processor)
{
	bool irqs_off = sim_kernel.processors[processor].irqs_off;
	bool preempt_off = sim_kernel.processors[processor].preempt_off;
	switch (random_below(4)) {
	case 0:
		if (sim_kernel.processors[processor].irqs_off < 3)
			sim_irqs_off(processor);
		break;
	case 1:
		if (sim_kernel.processors[processor].preempt_off < 3)
			sim_preempt_off(processor);
		break;
	case 2:
		if (irqs_off)
			sim_irqs_on(processor);
		break;
	default:
		if (preempt_off)
			sim_preempt_on(processor);
	}
}

static uint64_t cases_of(enum sim_kernel_tracer tracer)
{
	uint64_t cases = 0;
	for (uint32_t processor = 0; processor < SIM_KERNEL_PROCESSORS; processor++)
		cases += nopal_histogram_count(&sim_kernel.own[tracer][processor].histogram);
	return cases;
}

static void critical_sections_are_measured(void)
{
	for (uint64_t run = 1; run <= 50; run++) {
		seed = run;
		snprintf(circumstances, sizeof circumstances, "seed %llu", (unsigned long long)run);
		sim_kernel_begin();
		memset(counted, 0, sizeof counted);
		for (uint32_t step = 0; step < 2000; step++) {
			sim_kernel.clock += random_below(50);
			do_something(random_below(SIM_KERNEL_PROCESSORS));
			look_at_all();
		}
		for (uint32_t tracer = 0; tracer < SIM_WAKEUP; tracer++) {
			struct nopal_case worst;
			CHECK(cases_of(tracer) == counted[tracer].cases && counted[tracer].cases > 10);
			CHECK(sim_kernel_worst(tracer, &worst) && worst.end - worst.begin == counted[tracer].worst);
		}
	}
}

static uint64_t worst_of(enum sim_kernel_tracer tracer)
{
	struct nopal_case worst;
	return sim_kernel_worst(tracer, &worst) ? worst.end - worst.begin : 0;
}

/* Interrupts off for 10, in the middle of that preemption off for 20: together 25 ticks in which nothing else can
 * run. */
static void both_off_is_one_section(void)
{
	sim_kernel_begin();
	sim_irqs_off(0);
	sim_kernel.clock = 5;
	sim_preempt_off(0);
	sim_kernel.clock = 10;
	sim_irqs_on(0);
	sim_kernel.clock = 25;
	sim_preempt_on(0);
	CHECK(worst_of(SIM_IRQSOFF) == 10 && worst_of(SIM_PREEMPTOFF) == 20 && worst_of(SIM_PREEMPTIRQSOFF) == 25);
	CHECK(cases_of(SIM_PREEMPTIRQSOFF) == 1);
}

static void section_of_one_processor_does_not_end_on_another(void)
{
	sim_kernel_begin();
	sim_irqs_off(0);
	sim_kernel.clock = 10;
	sim_irqs_off(1);
	sim_kernel.clock = 12;
	sim_irqs_on(1);
	CHECK(worst_of(SIM_IRQSOFF) == 2);
	sim_kernel.clock = 30;
	sim_irqs_on(0);
	CHECK(worst_of(SIM_IRQSOFF) == 30);
}

static void wakeup_is_that_of_the_most_urgent_task(void)
{
	sim_kernel_begin();
	sim_kernel.priorities[1] = 120;
	sim_kernel.priorities[2] = 50;
	sim_kernel.priorities[3] = 10;
	sim_wake(0, 1);
	sim_kernel.clock = 5;
	sim_wake(0, 3);         /* more urgent: from here on, only its time counts */
	sim_kernel.clock = 6;
	sim_wake(0, 2);
	sim_kernel.clock = 12;
	sim_run(0, 3);
	CHECK(cases_of(SIM_WAKEUP) == 1 && worst_of(SIM_WAKEUP) == 7);
	sim_kernel.clock = 100;
	sim_run(0, 2);
	sim_run(1, 1);
	CHECK(cases_of(SIM_WAKEUP) == 1);
	/* A task that is woken by a more urgent one waits for its turn. */
	sim_kernel.processors[0].task = 3;
	sim_wake(0, 2);
	sim_kernel.clock = 200;
	sim_run(0, 2);
	CHECK(cases_of(SIM_WAKEUP) == 1);
	/* It is woken on one processor and runs on another. */
	sim_run(0, 0);
	sim_wake(0, 1);
	sim_kernel.clock = 230;
	sim_run(1, 1);
	CHECK(cases_of(SIM_WAKEUP) == 2 && worst_of(SIM_WAKEUP) == 30);
	struct nopal_case worst;
	CHECK(sim_kernel_worst(SIM_WAKEUP, &worst) && worst.key == 1 && worst.begin_processor == 0 &&
	      worst.end_processor == 1);
}

/* The same by chance, beside a plain model: the task that is followed is replaced by a more urgent one. */
static void wakeups_are_measured(void)
{
	for (uint64_t run = 1; run <= 50; run++) {
		uint64_t since = 0, worst = 0, cases = 0;
		uint32_t followed = 0;
		seed = run;
		snprintf(circumstances, sizeof circumstances, "seed %llu", (unsigned long long)run);
		sim_kernel_begin();
		for (uint32_t task = 1; task < SIM_TASKS; task++)
			sim_kernel.priorities[task] = 30 * task;
		for (uint32_t step = 0; step < 2000; step++) {
			uint32_t processor = random_below(SIM_KERNEL_PROCESSORS), task = random_below(SIM_TASKS);
			sim_kernel.clock += random_below(50);
			uint32_t rank = sim_kernel.priorities[task];
			uint32_t running = sim_kernel.processors[processor].task;
			if (random_below(2)) {
				bool urgent = rank < sim_kernel.priorities[running];
				bool again = followed && task == followed;
				if (urgent && (!followed || rank < sim_kernel.priorities[followed] || again)) {
					followed = task;
					since = sim_kernel.clock;
				}
				sim_wake(processor, task);
				continue;
			}
			if (task && task == followed) {
				uint64_t time = sim_kernel.clock - since;
				worst = time > worst ? time : worst;
				cases++;
				followed = 0;
			}
			sim_run(processor, task);
		}
		CHECK(cases > 10 && cases_of(SIM_WAKEUP) == cases && worst_of(SIM_WAKEUP) == worst);
	}
}

const struct test kernel_tests[] = {
	{ "critical_sections_are_measured", critical_sections_are_measured },
	{ "both_off_is_one_section", both_off_is_one_section },
	{ "section_of_one_processor_does_not_end_on_another", section_of_one_processor_does_not_end_on_another },
	{ "wakeup_is_that_of_the_most_urgent_task", wakeup_is_that_of_the_most_urgent_task },
	{ "wakeups_are_measured", wakeups_are_measured },
	{ 0, 0 },
};
