// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Latency tracers of a kernel: irqsoff, preemptoff and preemptirqsoff by the sections of section.S, one of them at a
 * time; wakeup by the kernel's tracepoints and core's mechanism. Each processor has results of its own.
 */
#include <linux/sched.h>
#include <linux/vmalloc.h>
#include <asm/tsc.h>
#include "kernels.h"
#include "latency.h"
#include "latency_trace.h"
#include "module.h"
#include "records.h"
#include "section.h"

#define TIMEOUT_SECONDS 60

enum { WAKEUP = NOPAL_MODES, SWITCHES, EVENTS, TRACERS };
static const char *const names[] = {
	[NOPAL_IRQS] = "irqsoff",
	[NOPAL_PREEMPT] = "preemptoff",
	[NOPAL_JOINT] = "preemptirqsoff",
	[WAKEUP] = "wakeup",
	[SWITCHES] = "sched_switch",    /* these two measure nothing */
	[EVENTS] = "events",
};

/* The results of a tracer on a processor. There is one writer at a time, which no other writer interrupts. Readers
 * check `sequence`, which is odd during a change. */
struct results {
	struct nopal_latency_own own;   /* the sections use only its histogram */
	uint32_t sequence;
	uint64_t above;                 /* the threshold */
	uint64_t longest;               /* also before the worst case was forgotten */
	struct nopal_worst worst;
};

static struct results *results[TRACERS];        /* of nr_cpu_ids each; 0: never on */
static uint8_t *chunks[TRACERS];                /* the same: of NOPAL_CHUNK_BYTES each, of the worst cases */
static bool on[TRACERS];
static uint32_t threshold;                      /* microseconds; 0: none */
static const char *shown = "irqsoff";
/* Cases that belong to no tracer, such as those while sites change. */
static struct nopal_histogram nobodys;
static struct results *aim;                     /* of the section tracer that is on; 0: none */
static int aimed;                               /* its number */

static uint64_t ticks_of(uint64_t microseconds)
{
	return microseconds * tsc_khz / 1000;
}

uint64_t nopal_microseconds_of(uint64_t ticks)
{
	return mul_u64_u64_div_u64(ticks, 1000, tsc_khz);
}

static uint64_t limit_of(const struct results *mine)
{
	return threshold ? ticks_of(threshold) : mine->worst.ticks;
}

static void keep(int number, struct results *mine, uint64_t ticks, uint64_t end, uint64_t from, uint64_t to,
		 const struct task_struct *task)
{
	if (threshold && ticks > ticks_of(threshold))
		mine->above++;
	mine->longest = max(mine->longest, ticks);
	if (ticks <= mine->worst.ticks)
		return;
	WRITE_ONCE(mine->sequence, mine->sequence + 1);
	smp_wmb();
	mine->worst.ticks = ticks;
	mine->worst.from = from;
	mine->worst.to = to;
	mine->worst.thread = task->pid;
	mine->worst.process = task->tgid;
	mine->worst.processor = raw_smp_processor_id();
	mine->worst.count = preempt_count();
	mine->worst.irqs_off = raw_irqs_disabled();
	mine->worst.need_resched = test_tsk_need_resched((struct task_struct *)task);
	__builtin_memcpy(mine->worst.name, task->comm, TASK_COMM_LEN);
	mine->worst.user = task->cred->uid.val;
	mine->worst.policy = task->policy;
	mine->worst.urgency = task->rt_priority;
	mine->worst.nice = task->static_prio - DEFAULT_PRIO;
	mine->worst.end = end;
	mine->worst.bytes = nopal_records_copy(chunks[number] + (mine - results[number]) * NOPAL_CHUNK_BYTES);
	smp_wmb();
	WRITE_ONCE(mine->sequence, mine->sequence + 1);
}

/* ---- sections ---- */

void nopal_section_keep(uint64_t ticks, uint64_t to)
{
	struct nopal_section *section = this_cpu_ptr(&nopal_section);
	struct results *mine = container_of((struct nopal_histogram *)section->histogram, struct results, own.histogram);
	keep(READ_ONCE(aimed), mine, ticks, section->since + ticks, section->from, to, current);
	section->limit = limit_of(mine);
}

static void aim_here(void *unused)
{
	struct nopal_section *section = this_cpu_ptr(&nopal_section);
	struct results *mine = aim ? &aim[raw_smp_processor_id()] : 0;
	section->since = 0;
	section->limit = mine ? limit_of(mine) : U64_MAX;
	section->histogram = mine ? mine->own.histogram.buckets : nobodys.buckets;
}

static void aim_at(struct results *at)
{
	aim = at;
	on_each_cpu(aim_here, 0, 1);
}

static int switch_sections(int number, bool to, char *error, size_t room)
{
	for (int other = 0; other < WAKEUP; other++)
		if (to && on[other] && other != number) {
			snprintf(error, room, "tracer %s is on, and only one of its kind can be", names[other]);
			return -EBUSY;
		}
	aim_at(0);
	int failed = to ? nopal_sections_on(number) : nopal_sections_off();
	if (failed == -EOPNOTSUPP)
		snprintf(error, room, "tracer %s is not for this kernel: it counts preemption, or returns, in another way",
			 names[number]);
	if (!failed && to) {
		WRITE_ONCE(aimed, number);
		aim_at(results[number]);
	}
	return failed;
}

/* ---- wakeup ---- */

enum { WOKEN, RUNS };
static const struct nopal_tracer wakeup_tracer = {
	.name = "wakeup",
	.begins = 1 << WOKEN,
	.ends = 1 << RUNS,
	.key = NOPAL_KEY_VALUE,
	.nesting = NOPAL_NESTING_AGAIN,
	.most_urgent = true,
};
static struct nopal_latency *wakeup;
/* The rank of the task that a processor runs. */
static DEFINE_PER_CPU(uint32_t, running_rank);

/* A task with a deadline has -1. */
static uint32_t rank_of(const struct task_struct *task)
{
	return task->prio + 1;
}

static void rank_here(void *unused)
{
	this_cpu_write(running_rank, rank_of(current));
}

static struct nopal_event event_of(uint32_t event, const struct task_struct *task)
{
	return (struct nopal_event){
		.event = event,
		.processor = raw_smp_processor_id(),
		.thread = task->pid,
		.rank = rank_of(task),
		.value = task->pid,
		.clock = rdtsc_ordered(),
	};
}

static void at_wakeup(void *unused, struct task_struct *task)
{
	struct nopal_event event = event_of(WOKEN, task);
	struct nopal_case ended;
	if (event.rank < READ_ONCE(per_cpu(running_rank, task_cpu(task))))
		nopal_latency_event(wakeup, &results[WAKEUP][event.processor].own, &event, &ended);
}

static void at_switch(NOPAL_SWITCH_PARAMETERS)
{
	struct nopal_event event = event_of(RUNS, next);
	struct results *mine = &results[WAKEUP][event.processor];
	struct nopal_case ended;
	this_cpu_write(running_rank, event.rank);
	if (next->pid && nopal_latency_event(wakeup, &mine->own, &event, &ended) == NOPAL_OUTCOME_KEPT)
		keep(WAKEUP, mine, ended.end - ended.begin, ended.end, 0, 0, next);
}

static struct nopal_tracepoint points[] = {
	{ "sched_switch", at_switch },
	{ "sched_wakeup", at_wakeup },
	{ "sched_wakeup_new", at_wakeup },
};

static void wakeup_off(void)
{
	nopal_tracepoints_leave(points, ARRAY_SIZE(points));
	vfree(wakeup);
	wakeup = 0;
}

static int wakeup_on(void)
{
	wakeup = vzalloc(sizeof *wakeup);
	if (!wakeup)
		return -ENOMEM;
	wakeup->tracer = &wakeup_tracer;
	wakeup->threshold = ticks_of(threshold);
	wakeup->timeout = (uint64_t)tsc_khz * 1000 * TIMEOUT_SECONDS;
	int failed = nopal_tracepoints_join(points, ARRAY_SIZE(points));
	if (failed) {
		vfree(wakeup);
		wakeup = 0;
		return failed;
	}
	/* Sets the rank of processors that do not switch for long. Nothing interrupts between at_switch and the
	 * switch. */
	on_each_cpu(rank_here, 0, 1);
	return 0;
}

/* ---- sched_switch and events ---- */

static void trace_events(int number, bool to)
{
	bool all = number == EVENTS ? to : on[EVENTS], switches = number == SWITCHES ? to : on[SWITCHES];
	nopal_markers_trace(all ? "*" : switches ? "sched_switch@" KBUILD_MODNAME : 0);
}

/* ---- commands ---- */

static int number_of(const char *name)
{
	for (int number = 0; number < TRACERS; number++)
		if (!strcmp(names[number], name))
			return number;
	return -ENOENT;
}

int nopal_tracer_switch(const char *name, bool to, char *error, size_t room)
{
	int number = number_of(name);
	if (number < 0) {
		snprintf(error, room, "there is no tracer %s: a kernel has irqsoff, preemptoff, preemptirqsoff, wakeup, sched_switch and events",
			 name);
		return -ENOENT;
	}
	if (on[number] == to)
		return 0;
	bool measures = number <= WAKEUP;
	if (measures && !results[number])
		results[number] = vzalloc(nr_cpu_ids * sizeof *results[number]);
	if (measures && !chunks[number])
		chunks[number] = vzalloc((size_t)nr_cpu_ids * NOPAL_CHUNK_BYTES);
	if (measures && (!results[number] || !chunks[number]))
		return -ENOMEM;
	int failed = 0;
	error[0] = 0;
	if (number < WAKEUP)
		failed = switch_sections(number, to, error, room);
	else if (!measures)
		trace_events(number, to);
	else if (to)
		failed = wakeup_on();
	else
		wakeup_off();
	if (failed && !error[0])
		snprintf(error, room, "tracer %s cannot be switched %s: error %d", name, to ? "on" : "off", -failed);
	if (failed)
		return failed;
	on[number] = to;
	if (to)
		shown = names[number];
	bool any = false;
	for (number = 0; number < TRACERS; number++)
		any |= on[number];
	nopal_records_trim(any);
	return 0;
}

int nopal_tracer_reset(const char *name)
{
	int number = number_of(name);
	if (number < 0)
		return number;
	if (!results[number])
		return 0;
	bool was_on = number < WAKEUP && on[number];
	if (was_on)
		aim_at(0);
	else if (on[number])
		wakeup_off();
	for (uint32_t processor = 0; processor < nr_cpu_ids; processor++) {
		struct results *one = &results[number][processor];
		one->own.worst = 0;
		one->above = 0;
		one->worst = (struct nopal_worst){ 0 };
	}
	if (was_on)
		aim_at(results[number]);
	else if (on[number])
		on[number] = !wakeup_on();
	return 0;
}

int nopal_tracer_choose(const char *name)
{
	int number = number_of(name);
	if (number >= 0)
		shown = names[number];
	return min(number, 0);
}

void nopal_tracers_threshold(uint32_t microseconds)
{
	threshold = microseconds;
	if (wakeup)
		WRITE_ONCE(wakeup->threshold, ticks_of(microseconds));
	if (aim)
		aim_at(aim);
}

/* ---- what was found ---- */

/* Reads the worst case, with the records of its processor if there is a `chunk` for them. */
static void read_worst(int number, uint32_t processor, struct nopal_worst *worst, void *chunk)
{
	const struct results *one = &results[number][processor];
	uint32_t sequence;
	do {
		sequence = READ_ONCE(one->sequence);
		smp_rmb();
		*worst = one->worst;
		if (chunk)
			memcpy(chunk, chunks[number] + (size_t)processor * NOPAL_CHUNK_BYTES, min(worst->bytes, NOPAL_CHUNK_BYTES));
		smp_rmb();
	} while (sequence & 1 || READ_ONCE(one->sequence) != sequence);
}

/* Finds the worst case of all processors. False: there is none. */
static bool find_worst(int number, struct nopal_worst *worst, void *chunk)
{
	uint32_t of = 0;
	*worst = (struct nopal_worst){ 0 };
	for (uint32_t processor = 0; processor < nr_cpu_ids; processor++) {
		struct nopal_worst one;
		read_worst(number, processor, &one, 0);
		if (one.ticks > worst->ticks) {
			*worst = one;
			of = processor;
		}
	}
	/* It may have become worse meanwhile. */
	if (worst->ticks && chunk)
		read_worst(number, of, worst, chunk);
	return worst->ticks;
}

/* The end of the quantile's bucket may be above the longest case. */
static uint64_t quantile(const struct nopal_histogram *histogram, uint64_t percent, uint64_t longest)
{
	return nopal_microseconds_of(min(nopal_histogram_quantile(histogram, percent, 100), longest));
}

void nopal_show_place(struct seq_file *file, uint64_t place, bool with_address)
{
	unsigned long callee = nopal_sections_callee(place);
	if (callee)
		seq_printf(file, "%ps (%pS", (void *)callee, (void *)place);
	else
		seq_printf(file, "%pS", (void *)place);
	if (with_address)
		seq_printf(file, " <%08llx>", place);
	if (callee)
		seq_puts(file, ")");
}

static void show_results(struct seq_file *file, int number)
{
	struct nopal_histogram *sum = vzalloc(sizeof *sum);
	struct nopal_worst worst;
	uint64_t above = 0, longest = 0;
	if (!sum)
		return;
	for (uint32_t processor = 0; processor < nr_cpu_ids; processor++) {
		nopal_histogram_merge(sum, &results[number][processor].own.histogram);
		above += results[number][processor].above;
		longest = max(longest, results[number][processor].longest);
	}
	seq_printf(file, "# %s: %llu cases", names[number], nopal_histogram_count(sum));
	if (threshold)
		seq_printf(file, ", %llu above the threshold", above);
	if (find_worst(number, &worst, 0)) {
		seq_printf(file, ", p50 %llu us, p99 %llu us, worst %llu us of %s-%u on processor %u\n",
			   quantile(sum, 50, longest), quantile(sum, 99, longest), nopal_microseconds_of(worst.ticks), worst.name,
			   worst.thread, worst.processor);
		for (uint32_t processor = 0; processor < nr_cpu_ids; processor++) {
			struct nopal_worst one;
			read_worst(number, processor, &one, 0);
			if (!one.from)
				continue;
			seq_printf(file, "#  processor %u: %llu us, from ", processor, nopal_microseconds_of(one.ticks));
			nopal_show_place(file, one.from, false);
			seq_puts(file, " to ");
			nopal_show_place(file, one.to, false);
			seq_puts(file, "\n");
		}
	} else {
		seq_puts(file, "\n");
	}
	vfree(sum);
}

void nopal_tracers_show(struct seq_file *file)
{
	if (threshold)
		seq_printf(file, "threshold %u\n", threshold);
	for (int number = 0; number < TRACERS; number++) {
		if (on[number])
			seq_printf(file, "tracer %s on\n", names[number]);
		if (results[number])
			show_results(file, number);
	}
	nopal_sections_show(file);
	struct nopal_case given_up;
	while (wakeup && nopal_latency_expire(wakeup, rdtsc_ordered(), &given_up))
		continue;
	if (wakeup)
		seq_printf(file, "# wakeup: %llu not followed for want of room, %llu never ran\n", wakeup->begins_lost, wakeup->never_ended);
}

/* The histogram of all processors: exact up to 63 ticks, and within 1/32 above. */
static void show_histogram(struct seq_file *file, int number)
{
	struct nopal_histogram *sum = vzalloc(sizeof *sum);
	uint64_t longest = 0, total = 0, count = 0, least = U64_MAX, most = 0;
	if (!sum)
		return;
	for (uint32_t processor = 0; processor < nr_cpu_ids; processor++) {
		nopal_histogram_merge(sum, &results[number][processor].own.histogram);
		longest = max(longest, results[number][processor].longest);
	}
	for (uint32_t bucket = 0; bucket < NOPAL_HISTOGRAM_BUCKETS; bucket++) {
		uint64_t low = nopal_histogram_low(bucket);
		if (!sum->buckets[bucket])
			continue;
		least = min(least, low);
		/* Only those that may become the worst case are told exactly. */
		most = longest > low ? min(longest, nopal_histogram_high(bucket)) : low;
		total += sum->buckets[bucket] * nopal_microseconds_of(low);
		count += sum->buckets[bucket];
	}
	seq_printf(file, "#Minimum latency: %llu microseconds\n#Average latency: %llu microseconds\n",
		   count ? nopal_microseconds_of(least) : 0, count ? total / count : 0);
	seq_printf(file, "#Maximum latency: %llu microseconds\n#Total samples: %llu\n#usecs         samples\n",
		   nopal_microseconds_of(most), count);
	for (uint32_t bucket = 0; bucket < NOPAL_HISTOGRAM_BUCKETS;) {
		uint64_t microseconds = nopal_microseconds_of(nopal_histogram_low(bucket)), cases = 0;
		for (; bucket < NOPAL_HISTOGRAM_BUCKETS; bucket++) {
			if (nopal_microseconds_of(nopal_histogram_low(bucket)) != microseconds)
				break;
			cases += sum->buckets[bucket];
		}
		if (cases)
			seq_printf(file, "%6llu %15llu\n", microseconds, cases);
	}
	vfree(sum);
}

void nopal_tracer_trace(struct seq_file *file, const char *name)
{
	int number = number_of(name ? name : shown);
	if (number > WAKEUP) {
		nopal_events_show(file, names[number], number == SWITCHES);
		return;
	}
	if (nopal_latency_shows_histogram() && number >= 0 && results[number]) {
		show_histogram(file, number);
		return;
	}
	struct nopal_worst worst;
	uint8_t *chunk = kvmalloc(NOPAL_CHUNK_BYTES, GFP_KERNEL);
	if (number < 0 || !results[number] || !chunk || !find_worst(number, &worst, chunk))
		seq_printf(file, "# no case of %s\n", name ? name : shown);
	else
		nopal_latency_trace_show(file, names[number], &worst, chunk, number == NOPAL_IRQS);
	kvfree(chunk);
}

int nopal_tracers_begin(void)
{
	return nopal_sections_begin();
}

void nopal_tracers_end(void)
{
	char error[64];
	mutex_lock(&nopal_lock);
	/* If thunks of sections stay, their cases belong to no tracer. */
	for (int number = 0; number < TRACERS; number++)
		nopal_tracer_switch(names[number], false, error, sizeof error);
	nopal_records_trim(false);
	mutex_unlock(&nopal_lock);
	nopal_sections_end();
	for (int number = 0; number < TRACERS; number++) {
		vfree(results[number]);
		vfree(chunks[number]);
	}
}
