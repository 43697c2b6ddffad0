/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The actors of chunks: threads and the tool. Compiled like core/chunk.c, so that all of it is watched.
 */
#include "arch.h"
#include "chunks.h"
#include "explore.h"
#include "port.h"

/* ---- Threads ---- */

static uint32_t thread_number(void)
{
	return sim_actors.running + THREADS * world.life[sim_actors.running];
}

/* Does what a thunk does, in a chunk whose last word only is still to be used. */
static void record(void)
{
	uint32_t self = sim_actors.running;
	struct nopal_context *context = &contexts[self];
	uint32_t event = world.events[self]++;
	for (;;) {
		uint64_t position = __atomic_load_n(&context->position, __ATOMIC_RELAXED);
		uint64_t room = nopal_chunk_room(position);
		if (!room) {
			if (!nopal_chunk_switch(&process, context, 0, 0, 8))
				continue;
			world.given_up[self] |= (uint8_t)(1 << event);
			return;
		}
		if (!arch_compare_exchange_local(&context->position, position, position + (room > 8 ? room - 8 : 8)) ||
		    room > 8)
			continue;
		port_race_point("an event is stored");
		/* On x86-64, all stores are releases. */
		__atomic_store_n((uint64_t *)position, (uint64_t)(event * THREADS + self + 1), __ATOMIC_RELEASE);
		world.stored[self] |= (uint8_t)(1 << event);
		return;
	}
}

/* Two, so that it may come back to the chunk that was interrupted. */
void handle_signal(void)
{
	record();
	record();
}

void live(void)
{
	while (world.events[sim_actors.running] < events_to_come)
		record();
	world.has_ended[thread_number()] = true;
}

/* Another thread gets the memory, and finds the context of the one that has died. */
void live_in_its_memory(void)
{
	struct nopal_context *context = &contexts[sim_actors.running];
	nopal_chunk_abandon(&process, context);
	context->position = 0;
	context->switches = 0;
	context->thread = thread_number() + 1;
	context->begin = thread_number() + 1;
	record();
	world.has_ended[thread_number()] = true;
}

/* ---- The tool, as crates/record does it ---- */

/* A header that its thread may be writing. */
__attribute__((no_sanitize("thread"))) static uint32_t glance_at_thread(uint32_t chunk)
{
	return *(volatile uint32_t *)&chunk_at(chunk)->thread;
}

static bool has_ended(uint32_t thread)
{
	if (!world.has_ended[thread])
		return false;
	sim_learn_of(thread % THREADS);
	return true;
}

static void found(uint64_t event, uint32_t thread)
{
	uint32_t of = (uint32_t)(event - 1) % THREADS, number = (uint32_t)(event - 1) / THREADS;
	if (of != thread % THREADS)
		sim_broken("an event is found in another thread's chunk");
	if (world.found[of] & 1 << number)
		sim_broken("an event is found twice");
	world.found[of] |= (uint8_t)(1 << number);
}

/* Copies, zeroes and frees a chunk that was handed over. False: not yet. */
static bool take_chunk(uint32_t chunk, bool settled)
{
	struct nopal_chunk_header *header = chunk_at(chunk);
	uint32_t thread = header->thread - 1;
	if (header->thread) {
		uint64_t sequence = header->sequence;
		if (!settled && sequence > world.next_sequence[thread] &&
		    !(takes_any_first && !world.next_sequence[thread]))
			return false;
		uint64_t event = __atomic_load_n(last_word(header), __ATOMIC_ACQUIRE);
		if (header->content_bits && !event && !settled)
			return false;
		/* Without an event, it may be one whose thread died before the first event in it. */
		if (event && sequence < world.next_sequence[thread])
			sim_broken("a thread's chunks come out of order");
		if (event || header->content_bits)
			world.next_sequence[thread] = (uint8_t)(sequence + 1);
		if (event)
			found(event, thread);
	}
	__atomic_store_n(last_word(header), 0, __ATOMIC_RELAXED);
	*(struct nopal_resync *)(header + 1) = (struct nopal_resync){ 0 };
	*header = (struct nopal_chunk_header){ 0 };
	__atomic_store_n(state_word(chunk), NOPAL_CHUNK_FREE, __ATOMIC_RELEASE);
	if (chunk < __atomic_load_n(&process.region->first_free, __ATOMIC_RELAXED))
		__atomic_store_n(&process.region->first_free, chunk, __ATOMIC_RELAXED);
	__atomic_add_fetch(&process.region->freed, 1, __ATOMIC_RELEASE);
	return true;
}

static uint32_t take_all(bool settled)
{
	uint32_t taken = 0;
	for (uint32_t chunk = 0; chunk < process.region->chunk_count; chunk++)
		if ((__atomic_load_n(state_word(chunk), __ATOMIC_ACQUIRE) & NOPAL_CHUNK_STATE_MASK) ==
		    NOPAL_CHUNK_FULL)
			taken += take_chunk(chunk, settled);
	return taken;
}

/* Takes over the chunk of a thread that has ended. The owner is read before the header: when the thread named there is
 * known to have ended, the chunk may belong to another one, which has not filled in its name yet. */
static uint32_t take_over(uint32_t chunk, bool settled)
{
	uint32_t owned = __atomic_load_n(state_word(chunk), __ATOMIC_ACQUIRE);
	if ((owned & NOPAL_CHUNK_STATE_MASK) != NOPAL_CHUNK_OWNED)
		return 0;
	uint32_t thread = glance_at_thread(chunk);
	port_race_point("whether a thread has ended is asked");
	if (!settled && (!thread || !has_ended(thread - 1)))
		return 0;
	if (looks_late) {
		owned = __atomic_load_n(state_word(chunk), __ATOMIC_ACQUIRE);
		if ((owned & NOPAL_CHUNK_STATE_MASK) != NOPAL_CHUNK_OWNED)
			return 0;
	}
	return __atomic_compare_exchange_n(state_word(chunk), &owned, NOPAL_CHUNK_FULL, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

static bool all_have_ended(void)
{
	for (uint32_t thread = 0; thread < THREADS; thread++)
		if (!has_ended(thread + THREADS * world.life[thread]))
			return false;
	return true;
}

void collect(void)
{
	for (bool last = false; !last;) {
		last = world.is_over = all_have_ended();
		uint32_t done = take_all(false);
		for (uint32_t chunk = 0; chunk < process.region->chunk_count; chunk++)
			done += take_over(chunk, false);
		last = last && !done;
	}
	/* Nobody writes any more. */
	for (uint32_t chunk = 0; chunk < process.region->chunk_count; chunk++)
		take_over(chunk, true);
	take_all(true);
}
