/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Contexts: found by the thread pointer, which identifies a thread that has no context yet.
 */
#include "core.h"
#include "port.h"

static uint64_t hash(uint64_t pointer)
{
	return (pointer * 0x9e3779b97f4a7c15u) >> 40;
}

/* The context shared by threads for which no context is free: it knows no stack, so all their events take the slow
 * path. Its token is set once there is such a thread, and wiped on fork like the contexts that were in use. `depth` is
 * where the next search for ended threads begins, and `waiting` the lock for making room in the table. */
static struct nopal_context *nobody(struct nopal_process *process)
{
	return &process->contexts[NOPAL_CONTEXTS - 1];
}

/* Finds the context of this thread pointer, or assigns it a free one. Its pointer is CLAIMED, so that no thread frees
 * it, except in a quiet process, where no thread does. A thread pointer belongs to one living thread at a time, so no
 * other thread writes to it. */
static struct nopal_context *claim(struct nopal_process *process, uint64_t pointer)
{
	uint64_t claimed = process->quiet ? pointer : pointer | NOPAL_THREAD_CLAIMED;
	for (uint32_t probe = 0; probe < NOPAL_CONTEXTS; probe++) {
		struct nopal_context *context =
			&process->contexts[(hash(pointer) + probe) & (NOPAL_CONTEXTS - 1)];
		if (context == nobody(process))
			continue;
		uint64_t seen = __atomic_load_n(&context->pointer, __ATOMIC_RELAXED);
		if ((!seen || seen == pointer) &&
		    __atomic_compare_exchange_n(&context->pointer, &seen, claimed, false, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			return context;
		if (seen == claimed && process->quiet)
			return context;
	}
	return 0;
}

/* The number of contexts checked for each thread that finds none. */
#define LOOKED_AT 512

/* Frees contexts of threads that have ended. Each is CLAIMED while its thread is checked: a thread that begins with the
 * same pointer takes another context meanwhile. Its entry in the table is then wrong, which the token shows. True if
 * one is free. */
static bool free_some(struct nopal_process *process)
{
	bool any = false;
	uint32_t *next = &nobody(process)->depth;
	uint32_t first = __atomic_fetch_add(next, LOOKED_AT, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < LOOKED_AT; i++) {
		struct nopal_context *context = &process->contexts[(first + i) & (NOPAL_CONTEXTS - 1)];
		uint64_t pointer = __atomic_load_n(&context->pointer, __ATOMIC_RELAXED);
		if (context == nobody(process) || !pointer || pointer & NOPAL_THREAD_CLAIMED ||
		    !port_thread_ended(context->process, context->thread))
			continue;
		port_race_point("context to free found");
		if (!__atomic_compare_exchange_n(&context->pointer, &pointer, pointer | NOPAL_THREAD_CLAIMED, false,
						 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		port_race_point("context to free claimed");
		/* Another thread may have begun with the same pointer meanwhile. */
		if (port_thread_ended(context->process, context->thread)) {
			nopal_chunk_abandon(process, context);
			context->position = 0;
			__atomic_store_n(&context->token, 0, __ATOMIC_RELAXED);
			pointer = 0;
			any = true;
		}
		__atomic_store_n(&context->pointer, pointer, __ATOMIC_RELEASE);
	}
	if (any)
		__atomic_store_n(&nobody(process)->token, 0, __ATOMIC_RELAXED);
	return any;
}

static uint32_t place_of(uint64_t pointer)
{
	return (uint32_t)pointer * NOPAL_THREAD_HASH >> NOPAL_THREAD_SHIFT;
}

/* The context noted for a thread pointer; 0: none. Searches like check_context in arch/. */
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

/* Clears the table when it is full: each thread then takes the slow path once, and is noted again. Threads that note
 * themselves meanwhile may be removed at once, or be noted twice. A child that is forked meanwhile finds the lock open,
 * since it lies with the contexts, and the table full. */
static void make_room(struct nopal_process *process)
{
	uint8_t open = 0, *lock = &nobody(process)->waiting;
	if (__atomic_load_n(&process->threads_noted, __ATOMIC_RELAXED) < NOPAL_THREADS_NOTED ||
	    !__atomic_compare_exchange_n(lock, &open, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	/* Unless another thread has cleared it. The count never falls below the noted threads. */
	if (__atomic_load_n(&process->threads_noted, __ATOMIC_RELAXED) >= NOPAL_THREADS_NOTED) {
		for (uint32_t place = 0; place < NOPAL_THREADS; place++) {
			uint64_t *pointer = &process->threads->pointers[place];
			if (__atomic_load_n(pointer, __ATOMIC_RELAXED) != NOPAL_THREAD_NONE)
				__atomic_store_n(pointer, 0, __ATOMIC_RELAXED);
		}
		port_race_point("places wiped");
		__atomic_sub_fetch(&process->threads_noted, NOPAL_THREADS_NOTED, __ATOMIC_RELAXED);
	}
	__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

/* Notes the context of a thread pointer, if there is room; otherwise its events take the slow path. A handler that
 * interrupts this finds and notes the same context. */
static void note(struct nopal_process *process, uint64_t pointer, struct nopal_context *context)
{
	struct nopal_threads *threads = process->threads;
	if (!find(process, pointer)) {
		if (!process->quiet)
			make_room(process);
		if (__atomic_add_fetch(&process->threads_noted, 1, __ATOMIC_RELAXED) > NOPAL_THREADS_NOTED) {
			__atomic_sub_fetch(&process->threads_noted, 1, __ATOMIC_RELAXED);
			return;
		}
	}
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

/* Whether an unknown thread pointer leads to the control block of this thread, and not elsewhere. If no system call is
 * allowed, it must lie above the stack, as those of new threads do: the memory between them is mapped. */
static bool is_control_block(struct nopal_process *process, uint64_t pointer)
{
	uint64_t id = pointer + (uint64_t)(int64_t)process->thread_slot;
	if (process->quiet)
		return pointer - (uint64_t)__builtin_frame_address(0) < NEAR;
	return port_readable(pointer) && port_readable(id) && *(volatile uint64_t *)pointer == pointer &&
	       *(volatile uint32_t *)id == port_thread_id();
}

/* Whether the control block holds the id of the running thread, and not that of another thread with the same pointer. A
 * child made without libc shares the control block, and so the id, of the thread that made it. */
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

/* Begins a thread: the first with this thread pointer, one that got the memory of an ended thread, or the only one in a
 * forked child. */
static void begin(struct nopal_process *process, struct nopal_context *context, uint32_t token)
{
	nopal_chunk_abandon(process, context);
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

/* Events are lost while the thread pointer leads elsewhere. If the thread has a context, its next event there records
 * the gap. If the context belonged to another thread with this id and is being reused for a third, that thread's first
 * event takes the slow path once more at worst. */
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
	if (!noted && !is_control_block(process, pointer)) {
		owe_hole(process);
		return 0;
	}
	uint32_t token = *(volatile uint32_t *)(pointer + (uint64_t)(int64_t)process->thread_slot);
	struct nopal_context *context = noted ? *noted : 0;
	if (context && context->token == token &&
	    (__atomic_load_n(&context->pointer, __ATOMIC_RELAXED) & ~NOPAL_THREAD_CLAIMED) == pointer)
		return context;
	if ((context == nobody(process) && context->token) || !is_own(process, token))
		return 0;

	/* Handlers must not see an unfinished context. Without system calls they may; then a chunk of theirs, marked with its
	 * thread, waits until the tool collects it. */
	uint64_t signals = process->quiet ? 0 : port_block_signals();
	context = claim(process, pointer);
	if (!context && !process->quiet && free_some(process))
		context = claim(process, pointer);
	if (context && context->token != token) {
		begin(process, context, token);
		port_race_point("context begun");
		__atomic_store_n(&context->token, token, __ATOMIC_RELEASE);
		port_race_point("context made");
	}
	if (context)
		__atomic_store_n(&context->pointer, pointer, __ATOMIC_RELEASE);
	if (!context) {
		__atomic_add_fetch(&process->region->threads_untraced, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&nobody(process)->token, ~0u, __ATOMIC_RELAXED);
	}
	note(process, pointer, context ? context : nobody(process));
	if (!process->quiet)
		port_restore_signals(signals);
	return context;
}

void nopal_count_lost(struct nopal_process *process, uint32_t reason)
{
	uint64_t pointer = port_thread_pointer();
	if (reason == NOPAL_LOST_UNKNOWN_THREAD) {
		struct nopal_context *volatile *noted = find(process, pointer);
		if (noted && *noted == nobody(process))
			reason = NOPAL_LOST_TOO_MANY_THREADS;
	}
	nopal_region_lose(process->region, hash(pointer), reason, 1);
}
