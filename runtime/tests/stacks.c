/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The stack parts that are mirrored, and the stacks and clocks in the trace.
 */
#include "stubs.h"
#include "world.h"

static struct nopal_context *context(void)
{
	return context_of(sim.running);
}

static void deep_recursion_is_one_stack(void)
{
	world_begin(8);
	uint64_t slot = STACK + 40 * PART - 8;
	for (; slot > STACK; slot -= 0x800)
		play(NOPAL_KIND_ENTRY, slot);
	uint32_t slow = sim.system_calls;
	CHECK(context()->stack.low == STACK && context()->stack.span == 40 * PART);
	for (slot += 0x800; slot < STACK + 40 * PART; slot += 0x800)
		play(NOPAL_KIND_EXIT, slot);
	CHECK(sim.system_calls == slow);
	CHECK(sim.mappings == 40);
	world_end(0);
	CHECK(resyncs_found(NOPAL_RESYNC_STACK) == 1);
}

static void range_grows_upwards_too(void)
{
	world_begin(8);
	for (uint64_t slot = STACK + 8; slot < STACK + 3 * PART; slot += 0x1000)
		play(NOPAL_KIND_ENTRY, slot);
	CHECK(context()->stack.low == STACK && context()->stack.span == 3 * PART);
	world_end(0);
	CHECK(resyncs_found(NOPAL_RESYNC_STACK) == 1);
}

static void part_beside_but_far_is_another_stack(void)
{
	world_begin(8);
	play(NOPAL_KIND_ENTRY, STACK + 8);
	play(NOPAL_KIND_ENTRY, STACK - PART + 8);
	CHECK(context()->stack.low == STACK - PART && context()->stack.span == PART);
	play(NOPAL_KIND_ENTRY, OTHER_STACK + 8);
	CHECK(context()->stack.low == OTHER_STACK && context()->stack.span == PART);
	play(NOPAL_KIND_ENTRY, STACK + 8);
	CHECK(sim.mappings == 3);
	world_end(0);
	CHECK(resyncs_found(NOPAL_RESYNC_STACK) == 4);
}

static bool nothing_may_be_mapped(uint64_t address, uint64_t bytes)
{
	(void)address;
	(void)bytes;
	return false;
}

static void stack_that_cannot_be_mirrored_is_traced_at_entry(void)
{
	world_begin(8);
	play(NOPAL_KIND_ENTRY, SLOT);
	sim.may_map = nothing_may_be_mapped;
	for (uint32_t i = 0; i < 50; i++)
		play(i % 2 ? NOPAL_KIND_ENTRY_ARGS : NOPAL_KIND_ENTRY, OTHER_STACK + 8 * i);
	for (uint32_t i = 2; i <= event_count; i++)
		CHECK(events[i].outcome == NOT_WRAPPED);
	uint32_t last = play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(events[last].outcome == RECORDED);
	CHECK(region->stacks_unmirrored == 1);
	CHECK(sim.system_calls < 20);
	world_end(0);
	for (uint32_t i = 2; i < last; i++)
		CHECK(events[i].found_kind == NOPAL_KIND_ONLY);
	CHECK(resyncs_found(NOPAL_RESYNC_STACK) == 3);
}

/* The tool could not unwrap its frames. */
static void stack_that_the_tool_cannot_read_is_traced_at_entry(void)
{
	world_begin(8);
	sim.unreadable = OTHER_STACK;
	CHECK(events[play(NOPAL_KIND_ENTRY, OTHER_STACK)].outcome == NOT_WRAPPED);
	CHECK(events[play(NOPAL_KIND_ENTRY, SLOT)].outcome == RECORDED);
	CHECK(sim.mappings == 1 && region->stacks_unmirrored == 1);
	world_end(0);
}

/* A mirror beside another takes no further mapping. */
static void mirrors_leave_mappings_to_the_program(void)
{
	world_begin(8);
	process.mappings_left = 1;
	uint64_t part = (uint64_t)1 << NOPAL_STACK_PART_SHIFT;
	CHECK(events[play(NOPAL_KIND_ENTRY, SLOT)].outcome == RECORDED);
	CHECK(process.mappings_left == 0);
	CHECK(events[play(NOPAL_KIND_ENTRY, OTHER_STACK)].outcome == NOT_WRAPPED);
	CHECK(events[play(NOPAL_KIND_ENTRY, SLOT - part)].outcome == RECORDED);
	CHECK(events[play(NOPAL_KIND_ENTRY, SLOT + part)].outcome == RECORDED);
	CHECK(sim.mappings == 3 && region->stacks_unmirrored == 1);
	world_end(0);
}

/* Then no mapping is requested, and none failed. */
static void process_without_mirrors(void)
{
	world_begin(8);
	process.mirror = 0;
	for (uint32_t i = 0; i < 50; i++)
		CHECK(events[play(NOPAL_KIND_ENTRY, SLOT + 8 * i)].outcome == NOT_WRAPPED);
	CHECK(region->stacks_unmirrored == 0 && sim.mappings == 0 && lost_events() == 0);
	world_end(0);
	for (uint32_t i = 1; i <= event_count; i++)
		CHECK(events[i].found_kind == NOPAL_KIND_ONLY);
}

static void full_table_of_stacks(void)
{
	world_begin(8);
	play(NOPAL_KIND_ENTRY, SLOT);
	for (uint32_t i = 0; i < NOPAL_STACK_PARTS; i++)
		if (!process.stack_parts[i])
			process.stack_parts[i] = (0x123450000ull + i) * 4 + 2;
	uint32_t mappings = sim.mappings;
	uint32_t refused = play(NOPAL_KIND_ENTRY, OTHER_STACK);
	CHECK(sim.mappings == mappings && events[refused].outcome == NOT_WRAPPED);
	world_end(0);
	CHECK(events[refused].found_kind == NOPAL_KIND_ONLY);
}

static struct sim_thread other_thread;
static struct sim_thread *first_thread;

static void other_thread_comes(const char *point)
{
	if (strcmp(point, "stack part pending"))
		return;
	sim.at_race_point = 0;
	sim.running = &other_thread;
	uint32_t event = play(NOPAL_KIND_ENTRY, STACK + 0x100);
	CHECK(events[event].outcome == NOT_WRAPPED);
	sim.running = first_thread;
}

/* Two threads' stacks share a part. */
static void part_that_another_thread_is_mapping(void)
{
	world_begin(8);
	first_thread = sim.running;
	other_thread = (struct sim_thread){ 0 };
	thread_begin(&other_thread, 200);
	play(NOPAL_KIND_ENTRY, OTHER_STACK);
	sim.running = first_thread;
	sim.at_race_point = other_thread_comes;
	uint32_t event = play(NOPAL_KIND_ENTRY, STACK + 0x8000);
	CHECK(events[event].outcome == RECORDED && !sim.at_race_point);
	sim.running = &other_thread;
	event = play(NOPAL_KIND_ENTRY, STACK + 0x100);
	CHECK(events[event].outcome == RECORDED);
	CHECK(sim.mappings == 2);
	world_end(0);
}

static void clock_goes_on_over_its_halves(void)
{
	world_begin(8);
	sim.clock = 0x4fffffff0;
	for (uint32_t i = 0; i < 40; i++)
		play(NOPAL_KIND_ENTRY, SLOT);
	for (uint32_t i = 1; i < 20; i++) {
		sim.clock += ((uint64_t)i << 32) + (i % 3 - 1) * 0x1000;
		play(NOPAL_KIND_ENTRY, SLOT);
	}
	world_end(0);
	CHECK(resyncs_found(NOPAL_RESYNC_CLOCK) == 20);
	for (uint32_t i = 1; i <= event_count; i++)
		CHECK(events[i].clock);
}

/* Also on a stack without a mirror, where the fast path takes no part. */
static void clock_goes_on_without_a_mirror(void)
{
	world_begin(8);
	sim.may_map = nothing_may_be_mapped;
	play(NOPAL_KIND_ENTRY, SLOT);
	sim.clock += 7ull << 32;
	uint64_t before = sim.clock;
	uint32_t event = play(NOPAL_KIND_ENTRY, SLOT);
	events[event].clock = sim.clock;
	CHECK(sim.clock > before);
	world_end(0);
	CHECK(resyncs_found(NOPAL_RESYNC_CLOCK) == 1);
}

static void jump_is_told(void)
{
	struct nopal_arguments arguments = { 0 };
	world_begin(8);
	play(NOPAL_KIND_ENTRY, SLOT);
	play(NOPAL_KIND_ENTRY, SLOT - 0x40);
	nopal_before_jump(&arguments);
	nopal_before_jump(&arguments);
	play(NOPAL_KIND_EXIT, SLOT);
	play(NOPAL_KIND_ENTRY, SLOT);
	world_end(0);
	CHECK(resyncs_found(NOPAL_RESYNC_JUMP) == 1);
	CHECK(resyncs_found(NOPAL_RESYNC_STACK) == 1);
}

const struct test stack_tests[] = {
	{ "deep_recursion_is_one_stack", deep_recursion_is_one_stack },
	{ "range_grows_upwards_too", range_grows_upwards_too },
	{ "part_beside_but_far_is_another_stack", part_beside_but_far_is_another_stack },
	{ "process_without_mirrors", process_without_mirrors },
	{ "stack_that_cannot_be_mirrored_is_traced_at_entry", stack_that_cannot_be_mirrored_is_traced_at_entry },
	{ "stack_that_the_tool_cannot_read_is_traced_at_entry", stack_that_the_tool_cannot_read_is_traced_at_entry },
	{ "mirrors_leave_mappings_to_the_program", mirrors_leave_mappings_to_the_program },
	{ "full_table_of_stacks", full_table_of_stacks },
	{ "part_that_another_thread_is_mapping", part_that_another_thread_is_mapping },
	{ "clock_goes_on_over_its_halves", clock_goes_on_over_its_halves },
	{ "clock_goes_on_without_a_mirror", clock_goes_on_without_a_mirror },
	{ "jump_is_told", jump_is_told },
	{ 0, 0 },
};
