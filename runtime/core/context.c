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

static uint32_t place_of(uint64_t pointer)
{
	return (uint32_t)pointer * NOPAL_THREAD_HASH >> NOPAL_THREAD_SHIFT;
}

/* What is noted for a thread pointer; 0: nothing. As check_context in arch/ looks for it. */
static struct nopal_context *volatile *find(struct nopal_process *process, uint64_t pointer)
{
	struct nopal_threads *threads = process->threads;
	for (uint32_t place = place_of(pointer);; place = (place + 1) & (NOPAL_THREADS - 1)) {
		uint64_t seen = __atomic_load_n(&threads->pointers[place], __ATOMIC_ACQUIRE);
		if (!seen)
			return 0;
		if ((seen & ~NOPAL_THREAD_CLAIMED) == pointer)
			return &threads->contexts[place];
	}
}

/* Notes the context of a thread pointer. A handler that comes in between finds the same context, and notes that. */
static void note(struct nopal_process *process, uint64_t pointer, struct nopal_context *context)
{
	struct nopal_threads *threads = process->threads;
	if (!find(process, pointer))
		__atomic_add_fetch(&process->threads_noted, 1, __ATOMIC_RELAXED);
	uint32_t place = place_of(pointer);
	uint64_t seen;
	for (;; place = (place + 1) & (NOPAL_THREADS - 1)) {
		seen = 0;
		if (__atomic_compare_exchange_n(&threads->pointers[place], &seen, pointer | NOPAL_THREAD_CLAIMED, false,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
		    (seen & ~NOPAL_THREAD_CLAIMED) == pointer)
			break;
	}
	port_race_point("thread claimed");
	threads->contexts[place] = context;
	__atomic_store_n(&threads->pointers[place], pointer, __ATOMIC_RELEASE);
}

#define NEAR (64ull << 20)

/* Whether a thread pointer that is not known leads to the control block of this thread, and not wherever a program may
 * have put it. Where no system call may ask, it is one if it is above the stack, as those of new threads are: what is
 * between is memory. */
static bool is_control_block(struct nopal_process *process, uint64_t pointer)
{
	uint64_t id = pointer + (uint64_t)(int64_t)process->thread_slot;
	if (process->quiet)
		return pointer - (uint64_t)__builtin_frame_address(0) < NEAR;
	return port_readable(pointer) && port_readable(id) && *(volatile uint64_t *)pointer == pointer &&
	       *(volatile uint32_t *)id == port_thread_id();
}

/* Whether the running thread is the one whose id is in the control block, and not another one that has its thread
 * pointer. A child that was made without libc's help has the id of the thread that made it there. */
static bool is_own(struct nopal_process *process, uint32_t token)
{
	if (process->quiet)
		return true;
	uint32_t thread = port_thread_id();
	return thread == token || (thread != process->process && thread == port_process_id());
}

bool nopal_context_is_own(struct nopal_process *process, const struct nopal_context *context)
{
	return is_own(process, context->token);
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
	context->owes_hole = 0;
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

/* Events are lost while the thread pointer leads elsewhere. If the thread has a context, its next event there tells.
 * Another thread may have had this number, and its context begin anew for a third just now: that thread's first event
 * comes to the slow path once more at worst. */
static void owe_hole(struct nopal_process *process)
{
	if (process->quiet)
		return;
	uint32_t thread = port_thread_id();
	for (uint32_t place = 0; place < NOPAL_THREADS; place++) {
		struct nopal_context *context = process->threads->contexts[place];
		if (!context || context->thread != thread || context->owes_hole)
			continue;
		context->owes_hole = 1;
		nopal_range_forget_any(context);
	}
}

struct nopal_context *nopal_context_get(struct nopal_process *process)
{
	uint64_t pointer = port_thread_pointer();
	struct nopal_context *volatile *noted = find(process, pointer);
	if (!noted && __atomic_load_n(&process->threads_noted, __ATOMIC_RELAXED) >= NOPAL_THREADS_NOTED)
		return 0;
	if (!noted && !is_control_block(process, pointer)) {
		owe_hole(process);
		return 0;
	}
	uint32_t token = *(volatile uint32_t *)(pointer + (uint64_t)(int64_t)process->thread_slot);
	struct nopal_context *context = noted ? *noted : 0;
	if (context && context->token == token && context->pointer == pointer)
		return context;
	if ((context == nobody(process) && context->token) || !is_own(process, token))
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
	note(process, pointer, context ? context : nobody(process));
	if (!process->quiet)
		port_restore_signals(signals);
	return context;
}

void nopal_count_lost(struct nopal_process *process)
{
	uint64_t *lost = &process->region->lost[hash(port_thread_pointer()) % NOPAL_LOST_COUNTERS].lost;
	__atomic_add_fetch(lost, 1, __ATOMIC_RELAXED);
}
