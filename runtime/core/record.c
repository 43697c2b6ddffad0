/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The slow path of recording: makes ready what a thunk's fast path found missing.
 */
#include "arch.h"
#include "core.h"
#include "port.h"

#define ROOM_FOR_RESYNC (NOPAL_RESYNC_BYTES + 8 * (1 + NOPAL_ARGUMENTS))

/* Reserves `bytes` at the position, for which there is room, and reads the clock in between, so that order in the
 * chunk is order in time. 0: a handler has filled the chunk. */
static uint64_t reserve(struct nopal_context *context, uint32_t bytes, uint64_t *clock)
{
	for (;;) {
		uint64_t position = __atomic_load_n(&context->position, __ATOMIC_RELAXED);
		if (nopal_chunk_room(position) < bytes)
			return 0;
		*clock = port_clock();
		port_race_point("clock read");
		if (arch_compare_exchange_local(&context->position, position, position + bytes))
			return position;
	}
}

/* The event's word is stored first and the clock last: a resync whose clock is 0 has not been written. */
static bool resync(struct nopal_context *context, uint64_t slot, uint32_t reason)
{
	uint64_t clock;
	struct nopal_resync *record = (struct nopal_resync *)reserve(context, sizeof *record, &clock);
	if (!record)
		return false;
	port_race_point("resync reserved");
	record->clock_low = (uint32_t)clock;
	__atomic_store_n(&record->kind_and_event, NOPAL_KIND_EXTENDED | NOPAL_EVENT_RESYNC << 4, __ATOMIC_RELAXED);
	record->slot = slot;
	record->stack = context->stack.low;
	record->process = context->process;
	record->thread = context->thread;
	record->reason = reason;
	__atomic_store_n(&record->clock, clock, __ATOMIC_RELEASE);
	context->clock_high = (uint32_t)(clock >> 32);
	return true;
}

static uint32_t unwrapped(uint32_t word)
{
	uint32_t kind = word & 15;
	if (kind == NOPAL_KIND_ENTRY || kind == NOPAL_KIND_ENTRY_ARGS || kind == NOPAL_KIND_ONLY_ARGS)
		kind = NOPAL_KIND_ONLY;
	return (word & ~15u) | kind;
}

/* Records an entry on a stack without a mirror, which the fast path never does. */
static bool record_unwrapped(struct nopal_process *process, struct nopal_context *context, uint64_t slot, uint32_t word)
{
	for (;;) {
		if (!nopal_chunk_switch(process, context, slot, ROOM_FOR_RESYNC))
			return false;
		uint64_t clock;
		if (context->clock_high != (uint32_t)(port_clock() >> 32) &&
		    !resync(context, slot, NOPAL_RESYNC_CLOCK))
			continue;
		uint32_t *record = (uint32_t *)reserve(context, 8, &clock);
		if (!record)
			continue;
		record[0] = (uint32_t)clock;
		__atomic_store_n(&record[1], unwrapped(word) | (uint32_t)(slot << 20 & 0xff000000), __ATOMIC_RELEASE);
		return true;
	}
}

int nopal_prepare(uint64_t slot, uint32_t word, uint32_t bytes)
{
	struct nopal_process *process = nopal_process;
	if (__atomic_load_n(&process->region->tool_gone, __ATOMIC_RELAXED))
		return 1;
	struct nopal_context *context = nopal_context_get(process);
	if (!context)
		return 1;
	if (context->muted) {
		nopal_lose(process, context);
		return 1;
	}

	uint32_t reason = 0;
	if (slot - context->stack.low >= context->stack.span) {
		struct nopal_range before = context->stack;
		bool moved = !before.span;
		if (nopal_stack_know(process, context, slot) == NOPAL_STACK_REFUSED) {
			if (!record_unwrapped(process, context, slot, word))
				nopal_lose(process, context);
			return 1;
		}
		/* A range that has grown is the same stack. */
		moved |= context->stack.low > before.low || context->stack.low + context->stack.span < before.low + before.span;
		reason = context->reason ? context->reason : moved ? NOPAL_RESYNC_STACK : 0;
		context->reason = 0;
	}
	uint64_t position = context->position;
	if (!position || nopal_chunk_room(position) < (reason ? bytes + NOPAL_RESYNC_BYTES : bytes)) {
		if (!nopal_chunk_switch(process, context, slot, reason ? ROOM_FOR_RESYNC : bytes)) {
			nopal_lose(process, context);
			context->stack.span = reason ? 0 : context->stack.span;
			return 1;
		}
	} else if (!reason && (uint32_t)(port_clock() >> 32) != context->clock_high) {
		reason = NOPAL_RESYNC_CLOCK;
	}
	/* Where a handler has filled the chunk meanwhile, the resync is still owed. */
	if (reason && !resync(context, slot, reason)) {
		context->reason = reason;
		context->stack.span = 0;
	}
	return 0;
}
