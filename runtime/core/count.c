/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Counting calls. The thunk does it itself if it finds the counters of the page of the stack that it is on. Here they
 * are looked for, or made, and the calls are drawn that are sampled.
 */
#include "core.h"
#include "port.h"

static uint32_t place_of(uint64_t stack)
{
	return (uint32_t)stack * NOPAL_THREAD_HASH >> NOPAL_COUNTED_SHIFT;
}

/* The step to the next sampled call. The distance looks random, and depends on nothing that the program's calls follow. It
 * is at least 2: with a call that is counted in between, the next one is another. Of eight distances one is 2: so a sample
 * within another one shows before long that a function calls itself, whose times cannot be estimated. */
static uint64_t to_next_sample(const uint64_t *counter, uint64_t count)
{
	uint64_t mixed = ((uint64_t)counter ^ count << 20) * 0x9e3779b97f4a7c15;
	mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93;
	uint64_t distance = mixed >> 61 ? 2 + (mixed >> 32) % (NOPAL_SAMPLE_DISTANCE - 2) : 2;
	return -distance << NOPAL_COUNT_BITS;
}

static uint64_t *counters_at(struct nopal_process *process, uint32_t page, uint32_t group)
{
	uint8_t *counters = (uint8_t *)process->region + process->counter_offset;
	/* Release: the page is whole, all zero, since the region was made. */
	__atomic_store_n((uint32_t *)counters + page, group + 1, __ATOMIC_RELEASE);
	return (uint64_t *)(counters + NOPAL_COUNTERS_AT + (uint64_t)page * NOPAL_COUNTER_PAGE_BYTES);
}

/* A page of the region that nobody else gets; 0: all are given out. */
static uint64_t *take_counters(struct nopal_process *process, uint32_t group)
{
	uint32_t *next = &process->region->counter_pages;
	/* Checked first: the number must not wrap. */
	if (__atomic_load_n(next, __ATOMIC_RELAXED) >= NOPAL_COUNTER_PAGES)
		return 0;
	uint32_t page = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
	return page < NOPAL_COUNTER_PAGES ? counters_at(process, page, group) : 0;
}

/* The places that are searched at most: a call must not take long if the table is full. */
#define LOOKED_AT 16

/* The counters of a page of a stack; 0: it gets none. */
static uint64_t *counters_of(struct nopal_process *process, uint64_t stack, uint32_t group)
{
	struct nopal_counted *counted = &process->counted[group];
	for (uint32_t probe = 0; probe < LOOKED_AT; probe++) {
		uint32_t place = (place_of(stack) + probe) & (NOPAL_COUNTED_STACKS - 1);
		uint64_t seen = __atomic_load_n(&counted->stacks[place], __ATOMIC_ACQUIRE);
		if (seen == stack)
			return counted->counters[place];
		/* We have interrupted the search of the same thread, or there were no counters then. */
		if (seen == (stack | NOPAL_COUNTED_CLAIMED))
			return 0;
		if (seen || !__atomic_compare_exchange_n(&counted->stacks[place], &seen, stack | NOPAL_COUNTED_CLAIMED,
							 false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		port_race_point("counters claimed");
		uint64_t *counters = take_counters(process, group);
		if (!counters)
			return 0;
		counted->counters[place] = counters;
		port_race_point("counters noted");
		/* If a handler has forked meanwhile, and we are in the child, the table is empty, and the counters are the
		 * parent's. */
		uint64_t claimed = stack | NOPAL_COUNTED_CLAIMED;
		bool ours = __atomic_compare_exchange_n(&counted->stacks[place], &claimed, stack, false, __ATOMIC_RELEASE,
							__ATOMIC_RELAXED);
		return ours ? counters : 0;
	}
	return 0;
}

/* A thread that cannot record goes on counting. With a limit of depth, a call may not be recorded either. */
static bool may_record(struct nopal_process *process)
{
	if (process->depth_limit || __atomic_load_n(&process->region->tool_gone, __ATOMIC_RELAXED))
		return false;
	const struct nopal_context *context = nopal_context_get(process);
	return context && !context->muted;
}

int nopal_count(uint64_t stack, uint32_t site, uint64_t step, uint64_t *counters)
{
	struct nopal_process *process = nopal_process;
	uint32_t group = site >> NOPAL_COUNTER_SITES_SHIFT;
	uint32_t place = site & ((1u << NOPAL_COUNTER_SITES_SHIFT) - 1);
	uint64_t count;
	if (step == NOPAL_COUNT_STEP) {
		count = __atomic_load_n(&counters[place], __ATOMIC_RELAXED);
	} else {
		counters = counters_of(process, stack >> NOPAL_COUNTED_PAGE_SHIFT, group);
		if (!counters)
			counters = counters_at(process, NOPAL_COUNTER_PAGES + group, group);
		count = __atomic_add_fetch(&counters[place], NOPAL_COUNT_STEP, __ATOMIC_RELAXED);
		if (count >> NOPAL_COUNT_BITS)
			return 0;
	}
	/* If a handler has forked since the thunk's step, parent and child are both here: the number must not go below 0. */
	bool sampled = count << (64 - NOPAL_COUNT_BITS) && may_record(process);
	__atomic_fetch_add(&counters[place], to_next_sample(&counters[place], count) - sampled, __ATOMIC_RELAXED);
	return sampled;
}
