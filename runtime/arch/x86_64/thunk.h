/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Thunks for a host that has no tool: copies of the template of thunk.S, filled in as crates/agent does elsewhere.
 */
#ifndef NOPAL_ARCH_THUNK_H
#define NOPAL_ARCH_THUNK_H

#include "arch.h"
#include "patch.h"
#include "process.h"

/* The labels of thunk.S, and where an arena begins that holds all thunks and nothing of the program. */
extern const uint8_t nopal_thunk[], nopal_thunk_entry_word[], nopal_thunk_entry_call[], nopal_thunk_body_call[],
	nopal_thunk_exit_word[], nopal_thunk_exit_call[], nopal_thunk_end[], nopal_entry[], nopal_exit[];
extern uint8_t nopal_image[];

/* The section .nopal_patches. */
struct arch_patch {
	uint64_t field;
	uint64_t kind;
};
extern const struct arch_patch nopal_patches[], nopal_patches_end[];

/* Call it before the first thunk runs. Fields of other kinds stay as they are: no limit of depth, and no order between
 * threads that is closer than the clock's. */
static inline void arch_fill_in(int64_t mirror, const struct nopal_threads *threads, uint32_t thread_slot)
{
	for (const struct arch_patch *patch = nopal_patches; patch < nopal_patches_end; patch++) {
		if (patch->kind == PATCH_MIRROR)
			*(uint64_t *)patch->field += (uint64_t)mirror;
		else if (patch->kind == PATCH_THREADS)
			*(uint64_t *)patch->field += (uint64_t)threads;
		else if (patch->kind == PATCH_THREAD_SLOT)
			*(uint32_t *)patch->field += thread_slot;
		else if (patch->kind == PATCH_MARK)
			*(uint32_t *)patch->field += (uint64_t)nopal_image & MARK_MASK;
	}
}

/* `field`: a label of the template, behind the four bytes. */
static inline void arch_thunk_field(uint8_t *thunk, const uint8_t *field, uint32_t value)
{
	__builtin_memcpy(thunk + (field - nopal_thunk) - 4, &value, 4);
}

static inline void arch_thunk_call(uint8_t *thunk, const uint8_t *field, const uint8_t *target)
{
	arch_thunk_field(thunk, field, (uint32_t)(target - (thunk + (field - nopal_thunk))));
}

/* Makes the thunk of a site whose window is a NOP, so that nothing is displaced. Returns its end. */
static inline uint8_t *arch_make_thunk(uint8_t *thunk, uint64_t site, uint32_t number)
{
	uint8_t *body = thunk + (nopal_thunk_end - nopal_thunk);
	__builtin_memcpy(thunk, nopal_thunk, (size_t)(nopal_thunk_end - nopal_thunk));
	arch_thunk_field(thunk, nopal_thunk_entry_word, number << 4 | NOPAL_KIND_ENTRY);
	arch_thunk_call(thunk, nopal_thunk_entry_call, nopal_entry);
	arch_thunk_call(thunk, nopal_thunk_body_call, body);
	arch_thunk_field(thunk, nopal_thunk_exit_word, number << 4 | NOPAL_KIND_EXIT);
	arch_thunk_call(thunk, nopal_thunk_exit_call, nopal_exit);
	arch_jump(body, (uint64_t)body, site + ARCH_JUMP_BYTES);
	return body + ARCH_JUMP_BYTES;
}

#endif
