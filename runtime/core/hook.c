/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Hooks of any host: the next event may be anywhere, the clock may not be read, the host's calls may not be made.
 */
#include "stubs.h"

static bool is_on(struct nopal_context *context, const struct nopal_arguments *arguments)
{
	struct nopal_range range = nopal_range_load(context);
	return (uint64_t)arguments - range.low < range.span;
}

/* longjmp, setcontext, swapcontext: the next event may be anywhere on this stack, or on another one. Does not slow down
 * the fast path. The chunk shows how far its records went, so that calls which the jump leaves are not taken for open ones
 * where no event follows. */
void nopal_before_jump(struct nopal_arguments *arguments)
{
	struct nopal_context *context = nopal_context_get(nopal_process);
	if (context && (is_on(context, arguments) || nopal_context_is_own(nopal_process, context))) {
		context->reason = NOPAL_RESYNC_JUMP;
		nopal_range_forget_any(context);
		context->waiting = 0;
		uint64_t position = context->position;
		if (position) {
			struct nopal_chunk_header *chunk = nopal_chunk_of(position);
			chunk->clock_end = position - (uint64_t)chunk;
		}
	}
}

void nopal_mute_thread(struct nopal_context *context)
{
	if (!context->muted)
		__atomic_add_fetch(&nopal_process->region->threads_muted, 1, __ATOMIC_RELAXED);
	context->muted = 1;
	nopal_range_forget_any(context);
}

void nopal_fall_quiet(bool mute)
{
	struct nopal_process *process = nopal_process;
	struct nopal_context *context = nopal_context_get(process);
	if (context && mute)
		nopal_mute_thread(context);
	__atomic_store_n(&process->quiet, 1, __ATOMIC_RELAXED);
}
