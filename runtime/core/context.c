/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Contexts: found by the thread pointer, since a thread that has none yet has nothing else to be known by.
 */
#include "core.h"
#include "port.h"

static uint64_t hash(uint64_t pointer)
{
	return (pointer * 0x9e3779b97f4a7c15u) >> 40;
}

/* What threads have that find no context free: no stack is known to it, so all their events come to the slow path. Its
 * token is set once there is such a thread, and wiped on fork like the contexts that were in use. */
static struct nopal_context *nobody(struct nopal_process *process)
{
	return &process->contexts[NOPAL_CONTEXTS - 1];
}

/* The context of this thread pointer, or a free one that is now. A thread pointer belongs to one living thread at a
 * time, so nobody else writes to it. */
static struct nopal_context *claim(struct nopal_process *process, uint64_t pointer)
{
	for (uint32_t probe = 0; probe < NOPAL_CONTEXTS; probe++) {
		struct nopal_context *context =
			&process->contexts[(hash(pointer) + probe) & (NOPAL_CONTEXTS - 1)];
		if (context == nobody(process))
			continue;
		uint64_t seen = __atomic_load_n(&context->pointer, __ATOMIC_RELAXED);
		if (!seen && __atomic_compare_exchange_n(&context->pointer, &seen, pointer, false, __ATOMIC_ACQ_REL,
							 __ATOMIC_RELAXED))
			return context;
		if (seen == pointer)
			return context;
	}
	return 0;
}

/* Has whoever takes nopal out know where its word is: when the thread has ended, perhaps with its parent in another
 * process, the control block may be kept for a later one, word and all. Where the table is full nothing is noted. */
static void note_pointer(struct nopal_process *process, uint64_t pointer)
{
	for (uint32_t probe = 0; probe < NOPAL_CONTEXTS; probe++) {
		uint64_t *place = &process->thread_pointers[(hash(pointer) + probe) & (NOPAL_CONTEXTS - 1)];
		uint64_t seen = __atomic_load_n(place, __ATOMIC_RELAXED);
		if (!seen)
			__atomic_compare_exchange_n(place, &seen, pointer, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
		if (!seen || seen == pointer)
			return;
	}
}

/* A new thread: perhaps the first on this thread pointer, perhaps one that got the memory of a thread that ended,
 * perhaps the only one in a forked child. */
static void begin(struct nopal_process *process, struct nopal_context *context, uint32_t token)
{
	nopal_chunk_abandon(process->region, context);
	port_race_point("context abandoned");
	context->stack.span = 0;
	context->position = 0;
	context->switches = 0;
	context->clock_high = 0;
	context->depth = 0;
	context->reason = 0;
	context->discarded = 0;
	context->waiting = 0;
	context->found_none = 0;
	if (process->quiet) {
		context->thread = token;
		context->process = process->process;
		context->muted = 0;
	} else {
		context->thread = port_thread_id();
		context->process = port_process_id();
		context->muted = !port_clock_allowed();
		if (process->tracer && context->process != process->process)
			port_allow_tracer(process->tracer);
	}
	if (context->muted)
		__atomic_add_fetch(&process->region->threads_muted, 1, __ATOMIC_RELAXED);
	context->begin = context->muted ? 0 : port_clock();
}

struct nopal_context *nopal_context_get(struct nopal_process *process)
{
	uint64_t pointer = port_thread_pointer();
	struct nopal_context **slot = (struct nopal_context **)(pointer + (int64_t)process->context_slot);
	uint32_t token = *(volatile uint32_t *)(pointer + (int64_t)process->thread_slot);
	struct nopal_context *context = *(struct nopal_context *volatile *)slot;
	if (context && context->token == token && context->pointer == pointer)
		return context;
	if (context == nobody(process) && context->token)
		return 0;

	/* Handlers must not see a context half made; without system calls they may, and then a chunk of theirs waits
	 * with its thread's name on it until the tool collects it. */
	uint64_t signals = process->quiet ? 0 : port_block_signals();
	context = claim(process, pointer);
	if (context && context->token != token) {
		begin(process, context, token);
		port_race_point("context begun");
		__atomic_store_n(&context->token, token, __ATOMIC_RELEASE);
		port_race_point("context made");
	}
	if (!context) {
		__atomic_add_fetch(&process->region->threads_untraced, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&nobody(process)->token, ~0u, __ATOMIC_RELAXED);
	}
	note_pointer(process, pointer);
	*(struct nopal_context *volatile *)slot = context ? context : nobody(process);
	if (!process->quiet)
		port_restore_signals(signals);
	return context;
}

void nopal_lose(struct nopal_process *process, struct nopal_context *context)
{
	if (context)
		context->discarded++;
	uint64_t *lost = &process->region->lost[hash(port_thread_pointer()) % NOPAL_LOST_COUNTERS].lost;
	__atomic_add_fetch(lost, 1, __ATOMIC_RELAXED);
}
