/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The functions that the parts of the core offer each other and the assembly in arch/. All of them may run in a signal
 * handler that interrupted any instruction of the same thread, also one of the core.
 */
#ifndef NOPAL_CORE_H
#define NOPAL_CORE_H

#include <stdbool.h>

#include "process.h"

/* ---- context.c ---- */

/* The running thread's context, which is made if necessary; 0 if no context is free, or if the thread pointer does not
 * lead to a control block of this thread. */
struct nopal_context *nopal_context_get(struct nopal_process *process);

/* Whether the context found by the thread pointer belongs to the running thread: another thread may have the same
 * pointer. To be called when a thread is on a stack that the context does not know. */
bool nopal_context_is_own(struct nopal_process *process, const struct nopal_context *context);

/* Counts an event that was not recorded, for one of the reasons NOPAL_LOST_*. */
void nopal_count_lost(struct nopal_process *process, uint32_t reason);

/* The same for several, in the counter of a number: that of a thread or processor, so that they seldom share one. */
static inline void nopal_region_lose(struct nopal_region *region, uint64_t number, uint32_t reason, uint64_t events)
{
	uint64_t *lost = region->lost[number % NOPAL_LOST_COUNTERS].lost;
	__atomic_add_fetch(&lost[NOPAL_LOST_ALL], events, __ATOMIC_RELAXED);
	__atomic_add_fetch(&lost[reason], events, __ATOMIC_RELAXED);
}

/* ---- record.c ---- */

/* How often an event is retried because a signal handler has recorded in between. A program that single-steps itself
 * may run a handler at every instruction, so the event would never be finished: then it is lost. */
#define NOPAL_ATTEMPTS (1u << NOPAL_ATTEMPTS_SHIFT)

/* Called by a thunk whose fast path cannot record the event of `word` (kind | site << 4, and above NOPAL_ATTEMPT_SHIFT
 * the number of retries) at `slot`, for a record of `bytes`. Returns 0 to try again; 1 if the event has been recorded
 * or is lost, and an entry must not be wrapped. If `word` is 0, nothing is recorded; without a mirror this returns 0,
 * with span 0. */
int nopal_prepare(uint64_t slot, uint64_t word, uint32_t bytes);

/* Counts a lost event of this thread; `context` is 0 if it has none. Also marks the loss in the chunk. */
void nopal_lose(struct nopal_process *process, struct nopal_context *context, uint32_t reason);

/* ---- chunk.c ---- */

static inline uint64_t nopal_chunk_room(uint64_t position)
{
	return -position & (NOPAL_CHUNK_BYTES - 1);
}

/* The chunk that `position`, not 0, lies in, or that it has filled. */
static inline struct nopal_chunk_header *nopal_chunk_of(uint64_t position)
{
	return (struct nopal_chunk_header *)((position - 1) & ~(uint64_t)(NOPAL_CHUNK_BYTES - 1));
}

/* Gives `context` a chunk with room for `bytes`, beginning with a resync record of slot and stack. Returns 0, or why
 * there is none: NOPAL_LOST_NO_ROOM, or NOPAL_LOST_INTERRUPTED if handlers have used each one. */
uint32_t nopal_chunk_switch(struct nopal_process *process, struct nopal_context *context, uint64_t slot, uint64_t stack,
			    uint32_t bytes);

/* Hands over the chunk that a thread which has ended left in `context`, unless the tool has taken it meanwhile. */
void nopal_chunk_abandon(const struct nopal_process *process, const struct nopal_context *context);

/* ---- count.c ---- */

/* Counts a call of a site by a thread that is on the stack at `stack`, or, if `step` is NOPAL_COUNT_STEP, goes on where a
 * thunk has made this step in `counters`, and the call is to be sampled. Returns whether the call is sampled: then it is
 * not counted, but to be recorded. */
int nopal_count(uint64_t stack, uint32_t site, uint64_t step, uint64_t *counters);

/* ---- range.c ---- */

/* Loads the range of a context at one moment. */
struct nopal_range nopal_range_load(struct nopal_context *context);

/* Changes the range, unless a signal handler has done so: then false. */
bool nopal_range_exchange(struct nopal_context *context, struct nopal_range from, struct nopal_range to);

/* The same, with a unique range of span 0, which is stored in *known. */
bool nopal_range_forget(struct nopal_context *context, struct nopal_range *known);

/* Makes the thread's next event take the slow path. */
void nopal_range_forget_any(struct nopal_context *context);

/* ---- stack.c; a host without mirrors has its own ---- */

enum nopal_stack {
	NOPAL_STACK_SAME,
	NOPAL_STACK_ANOTHER,
};

/* Mirrors the stack part that holds `slot`, which lies outside of `*range`, and makes `*range` one that holds it. Its
 * span is 0 where the part cannot be mirrored. */
enum nopal_stack nopal_stack_reach(struct nopal_process *process, struct nopal_range *range, uint64_t slot);

/* ---- request.c ---- */

/* Sends a request to the tool and waits for the answer; gives up when the tool's heartbeat stops. Returns whether the
 * request was granted. */
bool nopal_make_request(struct nopal_process *process, uint32_t what, uint64_t word, int32_t descriptor);

struct nopal_patience {
	uint32_t heartbeat;
	uint32_t steps;         /* waited so far, in the time of the shortest nap */
	uint32_t nap;           /* steps of the next one; 0: of the shortest */
	uint32_t heard;         /* step at which the heartbeat last changed */
};

/* Waits for a step for the tool to change `*word` from `value`. False: the tool is gone or a bound is reached. */
bool nopal_wait_step(struct nopal_process *process, struct nopal_patience *patience, uint32_t *word, uint32_t value);

/* The tool is gone: waits until its jumps are, too, which another process takes out. Never longer than a bound, and not
 * again after a wait in vain. */
void nopal_wait_for_text(struct nopal_process *process);

/* ---- hook.c ---- */

/* From now on, this thread does not read the clock, and nothing is recorded in it. */
void nopal_mute_thread(struct nopal_context *context);

/* From now on, no thread of this process makes a system call for us, since a filter may kill it. `mute`: this thread is
 * muted, too. */
void nopal_fall_quiet(bool mute);

/* ---- unwind.c ---- */

/* The block that contains an address, and the unwinding module; 0: none. */
const struct nopal_block *nopal_block_of(uint64_t address);
const struct nopal_unwinder *nopal_unwinder_of(uint64_t address);

/* Whether `address` is in generated code: a return address that equals it belongs to a thunk. */
int nopal_is_generated(uint64_t address);

#endif
