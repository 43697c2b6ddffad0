/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Calls that are counted, where the thunk knows no counters: all are counted once, and no two stacks have one counter.
 */
#include "world.h"

#define SITES (1u << NOPAL_COUNTER_SITES_SHIFT)
#define STACK_PAGE (1ull << NOPAL_COUNTED_PAGE_SHIFT)

#define CALLS ((1ull << NOPAL_COUNT_BITS) - 1)

/* Calls until one is not to be recorded. */
static void count(uint64_t stack, uint32_t site)
{
	while (nopal_count(stack, site, 0, 0))
		;
}

static uint32_t *groups(void)
{
	return (uint32_t *)((char *)region + process.counter_offset);
}

static uint64_t *page(uint32_t number)
{
	return (uint64_t *)((char *)groups() + NOPAL_COUNTERS_AT) + number * SITES;
}

/* Calls of a site in all pages, as the tool adds them up. */
static uint64_t counted(uint32_t site)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < NOPAL_COUNTER_PAGES + NOPAL_COUNTER_GROUPS; i++)
		if (groups()[i] == site / SITES + 1)
			sum += page(i)[site % SITES] & CALLS;
	return sum;
}

static uint64_t shared(uint32_t site)
{
	return page(NOPAL_COUNTER_PAGES + site / SITES)[site % SITES] & CALLS;
}

static void calls_of_a_site_are_added_up(void)
{
	world_begin(2);
	for (uint32_t i = 0; i < 10; i++)
		count(STACK + 16 * i, 1);
	count(STACK, SITES - 1);
	CHECK(region->counter_pages == 1 && counted(1) == 10 && counted(SITES - 1) == 1);
	count(STACK + STACK_PAGE, 1);
	count(STACK, SITES);
	count(STACK, NOPAL_SITE_LIMIT - 1);
	CHECK(region->counter_pages == 4 && counted(1) == 11);
	CHECK(counted(SITES) == 1 && counted(NOPAL_SITE_LIMIT - 1) == 1 && !counted(2) && !shared(1));
	world_end(0);
}

static void count_once(const char *name)
{
	sim.at_race_point = 0;
	CHECK(!strcmp(name, "counters claimed"));
	for (uint32_t i = 0; i < 3; i++)
		count(STACK, 1);
	count(OTHER_STACK, 1);
}

static void a_handler_counts_while_counters_are_looked_for(void)
{
	world_begin(2);
	sim.at_race_point = count_once;
	count(STACK, 1);
	count(STACK, 1);
	/* The handler's calls on this stack are among those that all share. */
	CHECK(counted(1) == 6 && shared(1) == 3 && region->counter_pages == 2);
	world_end(0);
}

/* A forked child has the region, but not its parent's table of counters. */
static void a_forked_child_has_counters_of_its_own(void)
{
	world_begin(2);
	count(STACK, 1);
	memset(process.counted, 0, NOPAL_COUNTER_GROUPS * sizeof *process.counted);
	count(STACK, 1);
	CHECK(region->counter_pages == 2 && (page(0)[1] & CALLS) == 1 && (page(1)[1] & CALLS) == 1);
	world_end(0);
}

static const char *fork_at;

static void fork_once(const char *name)
{
	if (strcmp(name, fork_at))
		return;
	sim.at_race_point = 0;
	memset(process.counted, 0, NOPAL_COUNTER_GROUPS * sizeof *process.counted);
}

/* A handler forks while its thread looks for counters, which stay the parent's. */
static void a_child_that_is_forked_meanwhile_has_counters_of_its_own(void)
{
	static const char *const points[] = { "counters claimed", "counters noted" };
	for (uint32_t i = 0; i < 2; i++) {
		world_begin(2);
		fork_at = points[i];
		sim.at_race_point = fork_once;
		for (uint32_t call = 0; call < 3; call++)
			count(STACK, 1);
		CHECK(!sim.at_race_point && region->counter_pages == 2);
		CHECK((page(0)[1] & CALLS) == 0 && (page(1)[1] & CALLS) == 2 && shared(1) == 1);
		for (uint32_t place = 0; place < NOPAL_COUNTED_STACKS; place++)
			CHECK(!process.counted[0].stacks[place] || process.counted[0].counters[place] == page(1));
		world_end(0);
	}
}

/* As a thunk counts, which has the counters. */
static void some_calls_are_sampled_and_all_others_counted(void)
{
	const uint64_t calls = 200 * NOPAL_SAMPLE_DISTANCE;
	world_begin(2);
	count(STACK, 1);
	uint64_t *counters = page(0), sampled = 0, most = 0;
	for (uint64_t call = 1, last = 0; call < calls; call++) {
		if (!__builtin_add_overflow(counters[1], NOPAL_COUNT_STEP, &counters[1]))
			continue;
		CHECK(nopal_count(STACK, 1, NOPAL_COUNT_STEP, counters) == 1);
		sampled++;
		/* The first comes late. */
		most = last && call - last > most ? call - last : most;
		last = call;
	}
	CHECK(counted(1) + sampled == calls);
	/* 2.3 times in the longest distance, on average, which seldom comes. */
	CHECK(sampled > 400 && sampled < 510 && most > NOPAL_SAMPLE_DISTANCE * 9 / 10 && most < NOPAL_SAMPLE_DISTANCE);
	world_end(0);
}

/* A thread that may not read the clock cannot record. */
static void calls_that_cannot_be_recorded_are_counted(void)
{
	world_begin(2);
	count(STACK, 1);
	nopal_context_get(&process)->muted = 1;
	uint64_t *counters = page(0);
	for (uint64_t made = 1; made <= 3; made++) {
		counters[1] += 1;       /* the thunk's step */
		counters[1] &= CALLS;
		CHECK(nopal_count(STACK, 1, NOPAL_COUNT_STEP, counters) == 0 && counted(1) == made + 1);
	}
	world_end(0);
}

static void all_calls_are_counted_where_counters_are_used_up(void)
{
	world_begin(2);
	count(STACK, 1);
	region->counter_pages = NOPAL_COUNTER_PAGES - 1;
	for (uint32_t round = 0; round < 3; round++)
		for (uint64_t stack = 0; stack < 100; stack++)
			count(STACK + stack * STACK_PAGE, 1);
	/* The first page, and the last one that was left, which another stack has got. */
	CHECK(counted(1) == 301 && (page(0)[1] & CALLS) == 4 && (page(NOPAL_COUNTER_PAGES - 1)[1] & CALLS) == 3 && shared(1) == 294);
	CHECK(region->counter_pages == NOPAL_COUNTER_PAGES);
	count(STACK, SITES);
	CHECK(shared(SITES) == 1);
	world_end(0);
}

/* If there are more stacks than a group has places for, some have no counters of their own. */
static void more_stacks_than_places(void)
{
	const uint64_t stacks = 4 * NOPAL_COUNTED_STACKS;
	world_begin(2);
	for (uint32_t round = 0; round < 2; round++)
		for (uint64_t stack = 0; stack < stacks; stack++)
			count(STACK + stack * STACK_PAGE, 1);
	CHECK(counted(1) == 2 * stacks && region->counter_pages <= NOPAL_COUNTED_STACKS);
	CHECK(shared(1) == 2 * (stacks - region->counter_pages));
	world_end(0);
}

const struct test count_tests[] = {
	{ "calls_of_a_site_are_added_up", calls_of_a_site_are_added_up },
	{ "a_handler_counts_while_counters_are_looked_for", a_handler_counts_while_counters_are_looked_for },
	{ "a_forked_child_has_counters_of_its_own", a_forked_child_has_counters_of_its_own },
	{ "a_child_that_is_forked_meanwhile_has_counters_of_its_own", a_child_that_is_forked_meanwhile_has_counters_of_its_own },
	{ "some_calls_are_sampled_and_all_others_counted", some_calls_are_sampled_and_all_others_counted },
	{ "calls_that_cannot_be_recorded_are_counted", calls_that_cannot_be_recorded_are_counted },
	{ "all_calls_are_counted_where_counters_are_used_up", all_calls_are_counted_where_counters_are_used_up },
	{ "more_stacks_than_places", more_stacks_than_places },
	{ 0, 0 },
};
