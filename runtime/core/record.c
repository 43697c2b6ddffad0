/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The slow path of recording: makes ready what a thunk's fast path found missing.
 */
#include "arch.h"
#include "core.h"
#include "port.h"

/* Reads the clock and reserves `bytes` at the position that was loaded before, so that the chunk is in order of time.
 * 0: there is no room, the clock's upper half is not `high`, or handlers move the position each time. */
static uint64_t reserve(struct nopal_context *context, uint32_t bytes, const uint32_t *high, uint64_t *clock)
{
	for (uint32_t attempt = 0; attempt < NOPAL_ATTEMPTS; attempt++) {
		uint64_t position = __atomic_load_n(&context->position, __ATOMIC_RELAXED);
		if (nopal_chunk_room(position) < bytes)
			return 0;
		*clock = port_clock();
		port_race_point("clock read");
		if (high && (uint32_t)(*clock >> 32) != *high)
			return 0;
		if (arch_compare_exchange_local(&context->position, position, position + bytes))
			return position;
	}
	return 0;
}

/* The event's word is stored first and the clock last: a resync with a clock of 0 is unfinished. */
static bool resync(struct nopal_context *context, uint64_t slot, uint64_t stack, uint32_t reason)
{
	uint64_t clock;
	struct nopal_resync *record = (struct nopal_resync *)reserve(context, sizeof *record, 0, &clock);
	if (!record)
		return false;
	port_race_point("resync reserved");
	record->clock_low = (uint32_t)clock;
	__atomic_store_n(&record->kind_and_event, NOPAL_KIND_EXTENDED | NOPAL_EVENT_RESYNC << 4, __ATOMIC_RELAXED);
	record->slot = slot;
	record->stack = stack;
	record->process = context->process;
	record->thread = context->thread;
	record->reason = reason;
	__atomic_store_n(&record->clock, clock, __ATOMIC_RELEASE);
	port_race_point("resync stored");
	context->clock_high = (uint32_t)(clock >> 32);
	return true;
}

/* Records an entry on a stack without a mirror, which the fast path never does. */
static bool record_unwrapped(struct nopal_context *context, uint64_t slot, uint32_t word)
{
	uint64_t clock;
	uint32_t *record = (uint32_t *)reserve(context, 8, &context->clock_high, &clock);
	if (!record)
		return false;
	port_race_point("entry reserved");
	record[0] = (uint32_t)clock;
	word = (word & ~15u) | NOPAL_KIND_ONLY | (uint32_t)(slot << 20 & 0xff000000);
	__atomic_store_n(&record[1], word, __ATOMIC_RELEASE);
	return true;
}

/* Writes a hole where a record is missing: smaller records may still find room behind it. False: there is no room for
 * any record, or handlers move the position each time. */
static bool leave_hole(struct nopal_context *context)
{
	for (uint32_t attempt = 0; attempt < NOPAL_ATTEMPTS; attempt++) {
		uint64_t position = __atomic_load_n(&context->position, __ATOMIC_RELAXED);
		if (!nopal_chunk_room(position))
			return false;
		uint32_t high = context->clock_high;
		uint64_t clock = port_clock();
		port_race_point("clock read for a hole");
		if (arch_compare_exchange_local(&context->position, position, position + 8)) {
			port_race_point("hole reserved");
			uint32_t *record = (uint32_t *)position;
			/* If the upper half has changed, only a resync record can show it: use the last clock before the change. */
			record[0] = (uint32_t)(clock >> 32) == high ? (uint32_t)clock : ~0u;
			__atomic_store_n(&record[1], NOPAL_KIND_HOLE, __ATOMIC_RELEASE);
			return true;
		}
	}
	return false;
}

/* If handlers prevent this, the next event writes the hole before its own record. */
static void tell_loss(struct nopal_context *context)
{
	context->owes_hole = 0;
	if (!leave_hole(context) && nopal_chunk_room(context->position)) {
		context->owes_hole = 1;
		nopal_range_forget_any(context);
	}
}

void nopal_lose(struct nopal_process *process, struct nopal_context *context, uint32_t reason)
{
	if (context) {
		arch_add_local(&context->discarded, 1);
		if (!context->muted)
			tell_loss(context);
	}
	nopal_count_lost(process, reason);
}

/*
 * The slow path provides what is missing, in this order:
 *
 * 1. a mirror for the part of the stack that the slot is in
 * 2. at the begin of another stack, or after a jump: an empty range, so that a handler that interrupts from now on
 *    writes its own resync record, since ours is not written yet
 * 3. room in the chunk, also for the resync record
 * 4. the resync record
 * 5. the range. If a handler has changed it since 1, begin again.
 *
 * Code that we have interrupted may have compared its slot with half of the old range and then compare it with half of
 * the new one. It has loaded the position before that; so the range may change only if the position has moved, or moves
 * before that code continues. If 4 is not due (a range that grows), our own event moves the position.
 */
int nopal_prepare(uint64_t slot, uint64_t word_and_attempts, uint32_t bytes)
{
	uint32_t word = (uint32_t)word_and_attempts;
	struct nopal_process *process = nopal_process;
	if (__atomic_load_n(&process->region->tool_gone, __ATOMIC_RELAXED))
		return 1;
	struct nopal_context *context = nopal_context_get(process);
	if (!context || context->muted || word_and_attempts >> NOPAL_ATTEMPT_SHIFT >= NOPAL_ATTEMPTS) {
		nopal_lose(process, context,
			   !context         ? NOPAL_LOST_UNKNOWN_THREAD
			   : context->muted ? NOPAL_LOST_NO_CLOCK
					    : NOPAL_LOST_INTERRUPTED);
		return 1;
	}
	if (context->owes_hole)
		tell_loss(context);

	struct nopal_range known = nopal_range_load(context), range = known;
	bool outside = slot - known.low >= known.span;
	uint32_t reason = 0;
	if (outside) {
		enum nopal_stack stack = nopal_stack_reach(process, &range, slot);
		reason = context->reason;
		if (!reason && stack == NOPAL_STACK_ANOTHER)
			reason = NOPAL_RESYNC_STACK;
		if (stack == NOPAL_STACK_ANOTHER && !nopal_context_is_own(process, context)) {
			nopal_lose(process, 0, NOPAL_LOST_UNKNOWN_THREAD);
			return 1;
		}
		port_race_point("stack reached");
		if (reason && !nopal_range_forget(context, &known))
			return 0;
		port_race_point("stack forgotten");
	}
	bool wraps = range.span;
	if (!wraps && word)
		bytes = 8;

	if (!reason && (uint32_t)(port_clock() >> 32) != context->clock_high)
		reason = NOPAL_RESYNC_CLOCK;
	uint32_t room = reason ? bytes + NOPAL_RESYNC_BYTES : bytes;
	if (nopal_chunk_room(context->position) < room) {
		uint32_t why_not = nopal_chunk_switch(process, context, slot, range.low, room);
		if (why_not) {
			nopal_lose(process, context, why_not);
			return 1;
		}
		if (reason == NOPAL_RESYNC_CLOCK)
			reason = 0;
	}
	if (reason && !resync(context, slot, range.low, reason))
		return 0;
	if (outside) {
		context->reason = 0;
		port_race_point("reason cleared");
		if (!nopal_range_exchange(context, known, range))
			return 0;
		port_race_point("stack known");
	}
	return !wraps && word && record_unwrapped(context, slot, word);
}
