/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Chunks: taken from the region, filled, handed to the tool.
 *
 * A chunk's state word goes FREE -> OWNED (a thread, compare-and-swap) -> FULL (its owner) -> FREE (the tool, after it
 * has copied and zeroed the chunk). The tool also takes OWNED chunks whose thread has ended, and so does a thread that
 * finds the context of one, by compare-and-swap. There is no list, so a thread that dies between any two instructions
 * leaves nothing broken.
 */
#include "arch.h"
#include "core.h"
#include "port.h"

/* The places of the region's parts come from private memory: a process that shares the region could change its
 * header. */
static uint32_t *state_words(const struct nopal_process *process)
{
	return (uint32_t *)((char *)process->region + process->state_offset);
}

static uint64_t chunk_address(const struct nopal_process *process, uint32_t index)
{
	return (uint64_t)process->region + process->chunk_offset + ((uint64_t)index << NOPAL_CHUNK_SHIFT);
}

static uint32_t *state_of(const struct nopal_process *process, const struct nopal_chunk_header *chunk)
{
	uint64_t index = ((uint64_t)chunk - chunk_address(process, 0)) >> NOPAL_CHUNK_SHIFT;
	return &state_words(process)[index];
}

/* A thread's number from the time of its beginning: few bits, but threads seldom begin together. */
static uint32_t owned_by(const struct nopal_context *context)
{
	return (uint32_t)context->begin * (NOPAL_CHUNK_STATE_MASK + 1) | NOPAL_CHUNK_OWNED;
}

/* A chunk has become free. Release pairs with the acquire of the thread that reads `freed`: it then finds the chunk,
 * too. */
static void tell_freed(struct nopal_region *region, uint32_t index)
{
	__atomic_store_n(&region->first_free, index, __ATOMIC_RELAXED);
	__atomic_add_fetch(&region->freed, 1, __ATOMIC_RELEASE);
}

/* Takes a free chunk, usually the one with the lowest number, so that few chunks are in use and their lines stay in the
 * cache. 0: none. */
static struct nopal_chunk_header *take(const struct nopal_process *process, const struct nopal_context *context)
{
	struct nopal_region *region = process->region;
	uint32_t *state = state_words(process);
	/* The tool may reduce the number of usable chunks meanwhile; a chunk taken before stays valid. */
	uint32_t count = __atomic_load_n(&region->chunk_count, __ATOMIC_RELAXED);
	if (count > process->chunk_limit)
		count = process->chunk_limit;
	uint32_t first = __atomic_load_n(&region->first_free, __ATOMIC_RELAXED);
	uint32_t index = first < count ? first : 0;
	for (uint32_t i = 0; i < count; i++, index = index + 1 < count ? index + 1 : 0) {
		uint32_t expected = NOPAL_CHUNK_FREE;
		if (__atomic_load_n(&state[index], __ATOMIC_RELAXED) != NOPAL_CHUNK_FREE)
			continue;
		/* Acquire pairs with the tool's release when it freed the chunk: we see the zeroes. */
		if (__atomic_compare_exchange_n(&state[index], &expected, owned_by(context), false, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED)) {
			__atomic_store_n(&region->first_free, index + 1, __ATOMIC_RELAXED);
			return (struct nopal_chunk_header *)chunk_address(process, index);
		}
	}
	return 0;
}

/* If threads drop events rather than wait, each still waits once, for its first chunk, less than half a second:
 * otherwise a burst of short threads would leave some unrecorded. When a thread has waited in vain, in any mode, no
 * thread waits until a chunk has become free: sleeping threads may hold them all. */
#define STEPS_FOR_FIRST 3000

static struct nopal_chunk_header *take_or_wait(struct nopal_process *process, struct nopal_context *context)
{
	struct nopal_region *region = process->region;
	bool blocks = region->when_full == NOPAL_WHEN_FULL_BLOCK;
	bool may_wait = !context->waiting && (blocks || (!context->position && !context->discarded));
	struct nopal_chunk_header *chunk = 0;
	struct nopal_patience patience = { 0 };
	for (;;) {
		/* Acquire: the search sees all chunks that became free before. */
		uint32_t freed = __atomic_load_n(&region->freed, __ATOMIC_ACQUIRE);
		if (context->found_none != freed)
			chunk = take(process, context);
		if (!chunk)
			context->found_none = freed;
		if (chunk || !may_wait)
			break;
		if (__atomic_load_n(&region->waited_in_vain, __ATOMIC_RELAXED) == freed)
			break;
		context->waiting = 1;
		if ((!blocks && patience.steps >= STEPS_FOR_FIRST) ||
		    !nopal_wait_step(process, &patience, &region->freed, freed)) {
			__atomic_store_n(&region->waited_in_vain, freed, __ATOMIC_RELAXED);
			break;
		}
	}
	if (may_wait)
		context->waiting = 0;
	return chunk;
}

void nopal_chunk_abandon(const struct nopal_process *process, const struct nopal_context *context)
{
	if (!context->position)
		return;
	uint32_t expected = owned_by(context);
	__atomic_compare_exchange_n(state_of(process, nopal_chunk_of(context->position)), &expected, NOPAL_CHUNK_FULL,
				    false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Hands over the chunk of `position` (0: none). */
static void finish(const struct nopal_process *process, uint64_t position)
{
	/* Release pairs with the tool's acquire: the tool sees the records, except for reserved ones that are not stored yet,
	 * for which it waits. */
	if (!position)
		return;
	struct nopal_chunk_header *chunk = nopal_chunk_of(position);
	chunk->content_bits = (position - (uint64_t)chunk) * 8;
	__atomic_store_n(state_of(process, chunk), NOPAL_CHUNK_FULL, __ATOMIC_RELEASE);
}

/*
 * 1. take a free chunk, which no handler knows to be ours
 * 2. fill in its header and a resync record
 * 3. publish: compare-and-swap the context's position from the old chunk to the new one, and the count of chunks with
 *    it: a handler that goes through several may come back to the old one, and to the same position in it
 * 4. hand over the old chunk
 *
 * A signal handler may come between any two steps and go through all four itself. If it does so before 3, our swap
 * fails: we give our chunk back unused and go on with the handler's. If between 3 and 4, it hands over the new chunk
 * before the old one; the tool puts them in order by their sequence. If the thread dies between 3 and 4, the tool finds
 * the old chunk OWNED by a dead thread.
 */
uint32_t nopal_chunk_switch(struct nopal_process *process, struct nopal_context *context, uint64_t slot, uint64_t stack,
			    uint32_t bytes)
{
	struct nopal_region *region = process->region;
	for (uint32_t attempt = 0; attempt < NOPAL_ATTEMPTS; attempt++) {
		uint64_t seen[2] = { 0, 0 };
		arch_compare_exchange_pair_local(&context->position, seen, 0, 0);
		uint64_t old = seen[0], sequence = seen[1];
		if (old && nopal_chunk_room(old) >= bytes)
			return 0;
		struct nopal_chunk_header *chunk = take_or_wait(process, context);
		if (!chunk)
			return NOPAL_LOST_NO_ROOM;
		port_race_point("chunk taken");

		uint64_t clock = port_clock();
		chunk->clock_begin = clock;
		chunk->clock_end = 0;
		chunk->discarded = context->discarded;
		chunk->sequence = sequence;
		chunk->process = context->process;
		chunk->thread = context->thread;
		chunk->thread_begin = context->begin;
		struct nopal_resync *resync = (struct nopal_resync *)(chunk + 1);
		*resync = (struct nopal_resync){
			.clock_low = (uint32_t)clock,
			.kind_and_event = NOPAL_KIND_EXTENDED | NOPAL_EVENT_RESYNC << 4,
			.clock = clock,
			.slot = slot,
			.stack = stack,
			.process = context->process,
			.thread = context->thread,
			.reason = NOPAL_RESYNC_CHUNK,
		};
		port_race_point("chunk filled in");
		if (arch_compare_exchange_pair_local(&context->position, seen, (uint64_t)(resync + 1), sequence + 1)) {
			context->clock_high = (uint32_t)(clock >> 32);
			port_race_point("chunk published");
			finish(process, old);
			return 0;
		}
		*resync = (struct nopal_resync){ 0 };
		*chunk = (struct nopal_chunk_header){ 0 };
		port_race_point("chunk given back");
		uint32_t *state = state_of(process, chunk);
		__atomic_store_n(state, NOPAL_CHUNK_FREE, __ATOMIC_RELEASE);
		tell_freed(region, (uint32_t)(state - state_words(process)));
	}
	return NOPAL_LOST_INTERRUPTED;
}
