/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * No chunk is free: events are dropped and counted, or threads wait, with a bound.
 */
#include "stubs.h"
#include "world.h"

#include <setjmp.h>

static void dropped_events_are_counted(void)
{
	world_begin(2);
	play_down(SLOT, 100);
	while (!lost_events())
		play(NOPAL_KIND_ENTRY, SLOT);
	for (uint32_t i = 0; i < 999; i++)
		play_call(i % 2 ? NOPAL_KIND_ENTRY : NOPAL_KIND_ENTRY_ARGS, SLOT - 64 * i);
	CHECK(lost_events() == 1000 && lost_for(NOPAL_LOST_NO_ROOM) == 1000);
	CHECK(sim.wakes == 0);
	tool_collect();
	uint32_t after = play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(events[after].outcome == RECORDED);
	struct nopal_context *context = context_of(sim.running);
	CHECK(nopal_chunk_of(context->position)->discarded == 1000);
	CHECK(nopal_chunk_of(context->position)->sequence == 2);
	world_end(0);
}

/* Large records no longer fit where small ones do: exits of recorded calls must find room. */
static void small_events_go_on_where_large_ones_are_dropped(void)
{
	world_begin(1);
	fill_chunk(SLOT, 32);
	uint32_t large = play(NOPAL_KIND_ENTRY_ARGS, SLOT);
	uint32_t small = play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(events[large].outcome == NOT_WRAPPED && events[small].outcome == RECORDED);
	CHECK(lost_events() == 1);
	world_end(0);
	CHECK(events[small].gaps == 1);
}

/* The same where no record may have the clock of the loss. */
static void the_counter_advances_at_a_loss(void)
{
	world_begin(1);
	fill_chunk(SLOT, 88);
	sim.clock = (sim.clock | 0xffffffff) + 1;
	uint32_t large = play(NOPAL_KIND_ENTRY_ARGS, SLOT);
	uint32_t small = play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(events[large].outcome == NOT_WRAPPED && events[small].outcome == RECORDED);
	world_end(0);
	CHECK(events[small].gaps == 1 && resyncs_found(NOPAL_RESYNC_CLOCK) == 1);
}

/* Events are lost on another stack, and then none on the first: the next recorded one says where it is. */
static void stack_is_told_after_a_loss(void)
{
	world_begin(2);
	fill_chunk(SLOT, 8);
	play(NOPAL_KIND_ENTRY, SLOT);
	fill_chunk(SLOT, 8);
	play(NOPAL_KIND_ENTRY, OTHER_STACK);
	play(NOPAL_KIND_ENTRY, OTHER_STACK);
	CHECK(lost_events() == 2);
	tool_collect();
	play(NOPAL_KIND_ENTRY, OTHER_STACK);
	play(NOPAL_KIND_ENTRY, SLOT);
	world_end(0);
	CHECK(resyncs_found(NOPAL_RESYNC_STACK) == 3);
}

/* ---- Waiting ---- */

static uint32_t waits, act_after, deepest, depth;
static bool beating;

static void tool_acts_at_last(uint32_t *word, uint32_t value)
{
	(void)word;
	(void)value;
	region->heartbeat++;
	if (++waits == act_after)
		tool_collect();
}

static void waiting_threads_lose_nothing(void)
{
	world_begin(2);
	region->when_full = NOPAL_WHEN_FULL_BLOCK;
	waits = 0;
	act_after = 200;
	sim.in_wait = tool_acts_at_last;
	play_down(SLOT, 10);
	while (!waits)
		play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(waits == 200);
	play_down(SLOT, 10);
	CHECK(lost_events() == 0);
	world_end(0);
}

static void tool_does_nothing(uint32_t *word, uint32_t value)
{
	(void)word;
	(void)value;
	region->heartbeat += beating;
	waits++;
}

static void fill_all(uint32_t chunks)
{
	world_begin(chunks);
	region->when_full = NOPAL_WHEN_FULL_BLOCK;
	waits = 0;
	for (uint32_t i = 0; i < chunks; i++) {
		fill_chunk(SLOT, 8);
		if (i + 1 < chunks)
			play(NOPAL_KIND_ENTRY, SLOT);
	}
	sim.in_wait = tool_does_nothing;
}

static void nobody_waits_for_a_tool_that_does_not_beat(void)
{
	beating = false;
	fill_all(2);
	uint64_t before = sim.clock;
	uint32_t event = play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(events[event].outcome == NOT_WRAPPED && lost_events() == 1);
	CHECK(waits > 0 && sim.clock - before < 1000000000);
	world_end(0);
}

static void waiting_has_a_bound(void)
{
	beating = true;
	fill_all(2);
	uint64_t before = sim.clock;
	play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(lost_events() == 1);
	CHECK(sim.clock - before > 1000000000 && sim.clock - before < 10000000000);
	world_end(0);
}

/* All chunks are held by sleeping threads: when one thread has waited as long as it may, the others need not. */
static void a_vain_wait_is_for_all(void)
{
	for (uint32_t mode = NOPAL_WHEN_FULL_DROP; mode <= NOPAL_WHEN_FULL_BLOCK; mode++) {
		static struct sim_thread sleepers[2], others[3];
		world_begin(2);
		region->when_full = mode;
		for (uint32_t i = 0; i < 2; i++) {
			thread_begin(&sleepers[i], 1000 + i);
			play(NOPAL_KIND_ENTRY, SLOT + PART * i);
		}
		beating = true;
		sim.in_wait = tool_does_nothing;
		for (uint32_t i = 0; i < 3; i++) {
			waits = 0;
			thread_begin(&others[i], 2000 + i);
			uint32_t event = play(NOPAL_KIND_ENTRY, SLOT + PART * (2 + i));
			CHECK(events[event].outcome == NOT_WRAPPED && !waits == (i > 0));
		}
		CHECK(lost_events() == 3);
		tool_take_over(1000);
		sim.running = &others[1];
		uint32_t event = play(NOPAL_KIND_ENTRY, SLOT + PART * 3);
		CHECK(events[event].outcome == RECORDED);
		waits = 0;
		thread_begin(&others[2], 3000);
		play(NOPAL_KIND_ENTRY, SLOT + PART * 4);
		CHECK(waits > 0);
		world_end(0);
	}
}

static void tool_goes(uint32_t *word, uint32_t value)
{
	(void)word;
	(void)value;
	waits++;
	region->tool_gone = 1;
}

static void waiting_ends_when_the_tool_says_that_it_goes(void)
{
	fill_all(1);
	sim.in_wait = tool_goes;
	play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(waits == 1 && lost_events() == 1);
	play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(waits == 1);
	event_count--;      /* after the end nothing is counted */
	world_end(0);
}

static void waiting_makes_no_system_call_in_a_quiet_process(void)
{
	beating = false;
	fill_all(1);
	process.quiet = 1;
	uint32_t before = sim.system_calls;
	play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(lost_events() == 1 && sim.system_calls == before);
	world_end(0);
}

static void handler_comes(uint32_t *word, uint32_t value)
{
	(void)word;
	(void)value;
	region->heartbeat++;
	waits++;
	deepest = depth > deepest ? depth : deepest;
	if (waits == 10) {
		depth++;
		play(NOPAL_KIND_ENTRY, SLOT - 0x400);
		depth--;
	}
	if (waits == 20)
		tool_collect();
}

static void handlers_do_not_wait_in_a_wait(void)
{
	fill_all(2);
	sim.in_wait = handler_comes;
	depth = deepest = 0;
	uint32_t event = play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(waits == 20 && deepest == 0 && lost_events() == 1);
	CHECK(events[event].outcome == RECORDED);
	world_end(0);
}

static jmp_buf out;

static void handler_jumps_out(uint32_t *word, uint32_t value)
{
	(void)word;
	(void)value;
	struct nopal_arguments arguments = { 0 };
	nopal_before_jump(&arguments);
	longjmp(out, 1);
}

static void threads_wait_again_after_a_jump_out_of_a_wait(void)
{
	fill_all(2);
	sim.in_wait = handler_jumps_out;
	if (!setjmp(out))
		play(NOPAL_KIND_ENTRY, SLOT);
	waits = 0;
	act_after = 3;
	sim.in_wait = tool_acts_at_last;
	uint32_t event = play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(waits == 3 && events[event].outcome == RECORDED && lost_events() == 0);
	world_end(0);
}

const struct test full_tests[] = {
	{ "dropped_events_are_counted", dropped_events_are_counted },
	{ "small_events_go_on_where_large_ones_are_dropped", small_events_go_on_where_large_ones_are_dropped },
	{ "the_counter_advances_at_a_loss", the_counter_advances_at_a_loss },
	{ "stack_is_told_after_a_loss", stack_is_told_after_a_loss },
	{ "waiting_threads_lose_nothing", waiting_threads_lose_nothing },
	{ "nobody_waits_for_a_tool_that_does_not_beat", nobody_waits_for_a_tool_that_does_not_beat },
	{ "waiting_has_a_bound", waiting_has_a_bound },
	{ "a_vain_wait_is_for_all", a_vain_wait_is_for_all },
	{ "waiting_ends_when_the_tool_says_that_it_goes", waiting_ends_when_the_tool_says_that_it_goes },
	{ "waiting_makes_no_system_call_in_a_quiet_process", waiting_makes_no_system_call_in_a_quiet_process },
	{ "handlers_do_not_wait_in_a_wait", handlers_do_not_wait_in_a_wait },
	{ "threads_wait_again_after_a_jump_out_of_a_wait", threads_wait_again_after_a_jump_out_of_a_wait },
	{ 0, 0 },
};
