/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Short stretches of recording, one for each part that the slow path provides.
 */
#include "stubs.h"
#include "world.h"

static void switching_chunks(void)
{
	world_begin(8);
	fill_chunk(SLOT, 8);
	arm();
	play_call(NOPAL_KIND_ENTRY, SLOT);
}

static void switching_chunks_with_room_left(void)
{
	world_begin(8);
	fill_chunk(SLOT, 24);
	arm();
	play_call(NOPAL_KIND_ENTRY_ARGS, SLOT);
}

static void first_event(void)
{
	world_begin(8);
	arm();
	play_call(NOPAL_KIND_ENTRY, SLOT);
}

static void counter_advances(void)
{
	world_begin(8);
	play(NOPAL_KIND_ENTRY, SLOT);
	sim.clock += 5ull << 32;
	arm();
	play(NOPAL_KIND_EXIT, SLOT);
}

static void counter_advances_at_the_end_of_a_chunk(void)
{
	world_begin(8);
	fill_chunk(SLOT, 24);
	sim.clock += 5ull << 32;
	arm();
	play(NOPAL_KIND_EXIT, SLOT);
	play(NOPAL_KIND_EXIT, SLOT);
}

static void going_to_another_stack(void)
{
	world_begin(8);
	play(NOPAL_KIND_ENTRY, SLOT);
	arm();
	play_call(NOPAL_KIND_ENTRY, OTHER_STACK + 0x8000);
	play(NOPAL_KIND_EXIT, SLOT);
}

static void going_down_into_a_new_part(void)
{
	world_begin(8);
	play(NOPAL_KIND_ENTRY, STACK + 0x100);
	arm();
	play_call(NOPAL_KIND_ENTRY, STACK - 0x10);
}

/* The range begins deep in the stack, and its mirror ends before the next event. */
static void going_up_into_a_new_part(void)
{
	world_begin(8);
	play(NOPAL_KIND_ENTRY, STACK + PART - 0x100);
	arm();
	play(NOPAL_KIND_ENTRY, STACK + PART + 0x10);
}

static void coming_out_of_a_jump(void)
{
	struct nopal_arguments arguments = { 0 };
	world_begin(8);
	play(NOPAL_KIND_ENTRY, SLOT - 0x1000);
	arm();
	nopal_before_jump(&arguments);
	play(NOPAL_KIND_EXIT, SLOT);
}

static bool not_the_other_stack(uint64_t address, uint64_t bytes)
{
	return address + bytes <= OTHER_STACK + (uint64_t)MIRROR || address > OTHER_STACK + (uint64_t)MIRROR;
}

static void stack_without_mirror(void)
{
	world_begin(8);
	sim.may_map = not_the_other_stack;
	fill_chunk(SLOT, 64);
	arm();
	play(NOPAL_KIND_ENTRY, OTHER_STACK + 0x8000);
	play(NOPAL_KIND_ENTRY_ARGS, OTHER_STACK + 0x8000);
}

void (*const scenarios[])(void) = {
	switching_chunks,
	switching_chunks_with_room_left,
	first_event,
	counter_advances,
	counter_advances_at_the_end_of_a_chunk,
	going_to_another_stack,
	going_down_into_a_new_part,
	going_up_into_a_new_part,
	coming_out_of_a_jump,
	stack_without_mirror,
	0,
};
