/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The thunk of an event, step by step as in record.S, with a race point between each two steps.
 */
#include "arch.h"
#include "world.h"

static uint32_t bytes_of(uint32_t kind)
{
	switch (kind) {
	case NOPAL_KIND_ENTRY_ARGS:
	case NOPAL_KIND_ONLY_ARGS:
		return 8 + 8 * NOPAL_ARGUMENTS;
	case NOPAL_KIND_EXIT_RESULT:
		return 16;
	default:
		return 8;
	}
}

static void store(uint64_t position, uint64_t clock, uint32_t upper, uint32_t bytes)
{
	uint32_t *record = (uint32_t *)position;
	record[0] = (uint32_t)clock;
	port_race_point("low word stored");
	if (bytes > 8) {
		uint32_t pending = bytes == 16 ? NOPAL_KIND_PENDING_RESULT : NOPAL_KIND_PENDING_ARGS;
		__atomic_store_n(&record[1], (upper & ~15u) | pending, __ATOMIC_RELAXED);
		port_race_point("pending");
		for (uint32_t i = 1; i < bytes / 8; i++)
			((uint64_t *)position)[i] = i;
		port_race_point("words stored");
	}
	__atomic_store_n(&record[1], upper, __ATOMIC_RELEASE);
}

struct nopal_context *context_of(const struct sim_thread *thread)
{
	uint32_t place = (uint32_t)(uint64_t)thread * NOPAL_THREAD_HASH >> NOPAL_THREAD_SHIFT;
	for (;; place = (place + 1) & (NOPAL_THREADS - 1)) {
		uint64_t pointer = process.threads->pointers[place];
		if (!pointer || pointer == (uint64_t)thread)
			return pointer ? process.threads->contexts[place] : 0;
	}
}

static bool record(struct event *event, uint32_t word, uint32_t bytes)
{
	struct sim_thread *block = (struct sim_thread *)port_thread_pointer();
	struct nopal_context *context = context_of(block);
	if (!context || context->token != block->id_in_block)
		return false;
	port_race_point("context checked");
	uint64_t position = context->position;
	port_race_point("position loaded");
	uint64_t distance = event->slot - context->stack.low;
	port_race_point("half of the range compared");
	if (distance >= context->stack.span)
		return false;
	port_race_point("stack checked");
	if (nopal_chunk_room(position) < bytes)
		return false;
	uint64_t clock = port_clock();
	port_race_point("clock read by the thunk");
	if (clock >> 32 != context->clock_high)
		return false;
	if (!arch_compare_exchange_local(&context->position, position, position + bytes))
		return false;
	CHECK(!sim.running->clock_faults);
	CHECK(sim_is_mapped(event->slot + (uint64_t)MIRROR));
	port_race_point("record reserved");
	store(position, clock, word | (uint32_t)(event->slot << 20 & 0xff000000), bytes);
	event->clock = clock;
	event->outcome = RECORDED;
	return true;
}

uint32_t play(uint32_t kind, uint64_t slot)
{
	CHECK(event_count + 1 < EVENTS);
	uint32_t site = ++event_count;
	struct event *event = &events[site];
	*event = (struct event){ .slot = slot, .kind = kind, .outcome = UNKNOWN, .thread = sim.running->id };
	uint32_t word = kind | site << 4, bytes = bytes_of(kind);
	uint64_t tries = 0;
	while (!record(event, word, bytes)) {
		CHECK(tries < 100);
		port_race_point("slow path");
		if (nopal_prepare(slot, word | tries++ << NOPAL_ATTEMPT_SHIFT, bytes)) {
			event->outcome = NOT_WRAPPED;
			break;
		}
	}
	event->end = event_count;
	return site;
}

void play_call(uint32_t entry, uint64_t slot)
{
	uint32_t site = play(entry, slot);
	if (events[site].outcome == RECORDED)
		play(entry == NOPAL_KIND_ENTRY_ARGS ? NOPAL_KIND_EXIT_RESULT : NOPAL_KIND_EXIT, slot);
}

void play_down(uint64_t slot, uint32_t calls)
{
	for (uint32_t i = 0; i < calls; i++)
		play(NOPAL_KIND_ENTRY, slot - 64 * i);
}

void fill_chunk(uint64_t slot, uint32_t bytes)
{
	struct nopal_context *context = context_of(sim.running);
	while (!context || nopal_chunk_room(context->position) >= bytes) {
		play(NOPAL_KIND_ENTRY, slot);
		context = context_of(sim.running);
	}
}
