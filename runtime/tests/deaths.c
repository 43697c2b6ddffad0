/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Threads that die at any race point: their records are there, and nothing that they held stays taken.
 */
#include "world.h"

static struct sim_thread other_thread;

/* A chunk's header names no thread yet, or no longer: only the end of the session tells that no thread writes into
 * it. */
static uint32_t chunks_of_nobody(const char *point)
{
	return point && (!strcmp(point, "chunk taken") || !strcmp(point, "chunk given back"));
}

/* A new thread gets the memory of the dead one, control block and all. */
static void reuse_memory(uint32_t id)
{
	thread_begin(sim.running, id);
	uint32_t before = event_count;
	play_down(SLOT, 100);
	for (uint32_t site = before + 1; site <= event_count; site++)
		CHECK(events[site].outcome == RECORDED);
}

static void collected_before_the_memory_is_used_again(const char *point)
{
	struct sim_thread *memory = sim.running;
	tool_take_over(100);
	tool_collect();
	CHECK(chunks_in_state(NOPAL_CHUNK_OWNED) == chunks_of_nobody(point));
	CHECK(chunks_in_state(NOPAL_CHUNK_FULL) == 0);

	/* Its chunk, of the lowest number, goes to another thread. */
	thread_begin(&other_thread, 200);
	play_down(SLOT + PART, 10);
	sim.running = memory;
	reuse_memory(300);
	CHECK(chunks_in_state(NOPAL_CHUNK_FULL) == 0);
	sim.running = &other_thread;
	play_down(SLOT + PART, 10);
	CHECK(chunks_in_state(NOPAL_CHUNK_OWNED) == 2 + chunks_of_nobody(point));
	world_end(1);
}

static void memory_used_again_before_it_is_collected(const char *point)
{
	reuse_memory(300);
	tool_collect();
	tool_take_over(100);
	CHECK(chunks_in_state(NOPAL_CHUNK_OWNED) == 1 + chunks_of_nobody(point));
	world_end(1);
}

static void collected_at_the_end(const char *point)
{
	(void)point;
	world_end(1);
}

static void at_every_point(bool also_blocked, void (*after)(const char *point))
{
	for (unsigned i = 0; scenarios[i]; i++)
		die_at_all_race_points(also_blocked, scenarios[i], after);
}

static void thread_dies_and_is_collected(void)
{
	other_thread = (struct sim_thread){ 0 };
	at_every_point(false, collected_before_the_memory_is_used_again);
}

static void thread_dies_and_its_memory_is_used_again(void) { at_every_point(false, memory_used_again_before_it_is_collected); }
static void process_dies(void) { at_every_point(true, collected_at_the_end); }

const struct test death_tests[] = {
	{ "thread_dies_and_is_collected", thread_dies_and_is_collected },
	{ "thread_dies_and_its_memory_is_used_again", thread_dies_and_its_memory_is_used_again },
	{ "process_dies", process_dies },
	{ 0, 0 },
};
