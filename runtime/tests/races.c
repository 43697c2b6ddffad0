/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Signal handlers that record, at every race point and at every pair of them.
 */
#include "stubs.h"
#include "world.h"

/* ---- Handlers. Slots are below those of the interrupted code; those of nested handlers are below these. ---- */

static uint64_t nested;

static void calling(void)
{
	uint64_t slot = SLOT - 0x400 - 0x400 * nested++;
	play_call(NOPAL_KIND_ENTRY, slot);
	play_call(NOPAL_KIND_ENTRY_ARGS, slot - 0x40);
	nested--;
}

static void calling_deep(void)
{
	uint64_t slot = SLOT - 0x400 - 0x400 * nested++;
	play(NOPAL_KIND_ENTRY, slot);
	for (uint64_t part = STACK; part >= STACK - 3 * PART; part -= PART)
		play(NOPAL_KIND_ENTRY, part - 0x10 * nested);
	nested--;
}

static void calling_on_another_stack(void)
{
	uint64_t slot = OTHER_STACK + 0x4000 - 0x400 * nested++;
	play_call(NOPAL_KIND_ENTRY, slot);
	nested--;
}

static void calling_on_two_stacks(void)
{
	calling_on_another_stack();
	calling();
}

static void switching_contexts(void)
{
	struct nopal_arguments arguments = { 0 };
	uint64_t slot = OTHER_STACK + 0x4000 - 0x400 * nested++;
	nopal_before_jump(&arguments);
	play(NOPAL_KIND_ENTRY, slot);
	nopal_before_jump(&arguments);
	nested--;
}

static void long_after(void)
{
	sim.clock += 3ull << 32;
	calling();
	sim.clock += 3ull << 32;
}

/* The tool at work between any two steps. */
static void collecting(void)
{
	tool_collect();
	calling();
	tool_collect();
}

static void (*const handlers[])(void) = {
	calling, calling_deep, calling_on_another_stack, calling_on_two_stacks, switching_contexts, long_after, collecting,
};

static void nothing_unknown(void)
{
	tool_collect();
	CHECK(chunks_in_state(NOPAL_CHUNK_OWNED) == 1 && chunks_in_state(NOPAL_CHUNK_FULL) == 0);
	for (uint32_t site = 1; site <= event_count; site++)
		CHECK(events[site].outcome != UNKNOWN);
	world_end(0);
}

static void nothing_lost(void)
{
	CHECK(lost_events() == 0);
	nothing_unknown();
}

static void at_every_pair(uint32_t handler)
{
	for (unsigned i = 0; scenarios[i]; i++)
		at_all_race_points(scenarios[i], handlers[handler], nothing_lost);
}

static void handler_calls(void) { at_every_pair(0); }
static void handler_calls_deep(void) { at_every_pair(1); }
static void handler_calls_on_another_stack(void) { at_every_pair(2); }
static void handler_calls_on_two_stacks(void) { at_every_pair(3); }
static void handler_switches_contexts(void) { at_every_pair(4); }
static void handler_comes_long_after(void) { at_every_pair(5); }
static void handler_comes_while_the_tool_collects(void) { at_every_pair(6); }

/* As in a program that single-steps itself: an event that is interrupted at every instruction may be lost, but ends. */
static void handler_comes_at_every_point(void)
{
	for (unsigned i = 0; scenarios[i]; i++)
		for (unsigned handler = 0; handler < sizeof handlers / sizeof *handlers; handler++)
			at_every_race_point(scenarios[i], handlers[handler], nothing_unknown);
}

const struct test race_tests[] = {
	{ "handler_calls", handler_calls },
	{ "handler_calls_deep", handler_calls_deep },
	{ "handler_calls_on_another_stack", handler_calls_on_another_stack },
	{ "handler_calls_on_two_stacks", handler_calls_on_two_stacks },
	{ "handler_switches_contexts", handler_switches_contexts },
	{ "handler_comes_long_after", handler_comes_long_after },
	{ "handler_comes_while_the_tool_collects", handler_comes_while_the_tool_collects },
	{ "handler_comes_at_every_point", handler_comes_at_every_point },
	{ 0, 0 },
};
