/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The CPU operations that runtime/core needs, on AArch64. AArch64 has neither thunks nor stubs yet.
 */
#ifndef NOPAL_ARCH_H
#define NOPAL_ARCH_H

#include <stdbool.h>
#include <stdint.h>

/* Compare and swap that is atomic with respect to this thread's own signal handlers: a return from one ends the
 * exclusive access, so the store fails and the loop repeats. */
static inline bool arch_compare_exchange_local(uint64_t *word, uint64_t expected, uint64_t desired)
{
	uint64_t found;
	uint32_t failed;
	__asm__ volatile("1:	ldxr %0, %2\n"
			 "	cmp %0, %3\n"
			 "	b.ne 2f\n"
			 "	stxr %w1, %4, %2\n"
			 "	cbnz %w1, 1b\n"
			 "2:"
			 : "=&r"(found), "=&r"(failed), "+Q"(*word)
			 : "r"(expected), "r"(desired)
			 : "memory", "cc");
	return found == expected;
}

/* The same for two words, 16 aligned bytes. If they differ from `expected`, it is set to their values, which are stored
 * again: only a successful store proves that both words were loaded at once. */
static inline bool arch_compare_exchange_pair_local(void *pair, uint64_t expected[2], uint64_t low, uint64_t high)
{
	uint64_t found[2], stored[2];
	uint32_t failed;
	__asm__ volatile("1:	ldxp %0, %1, %5\n"
			 "	cmp %0, %6\n"
			 "	ccmp %1, %7, #0, eq\n"
			 "	csel %2, %8, %0, eq\n"
			 "	csel %3, %9, %1, eq\n"
			 "	stxp %w4, %2, %3, %5\n"
			 "	cbnz %w4, 1b"
			 : "=&r"(found[0]), "=&r"(found[1]), "=&r"(stored[0]), "=&r"(stored[1]), "=&r"(failed),
			   "+Q"(*(__uint128_t *)pair)
			 : "r"(expected[0]), "r"(expected[1]), "r"(low), "r"(high)
			 : "memory", "cc");
	bool done = found[0] == expected[0] && found[1] == expected[1];
	expected[0] = found[0];
	expected[1] = found[1];
	return done;
}

/* Adds to a word, equally atomically, and returns its previous value. */
static inline uint64_t arch_add_local(uint64_t *word, uint64_t value)
{
	uint64_t before, sum;
	uint32_t failed;
	__asm__ volatile("1:	ldxr %0, %3\n"
			 "	add %1, %0, %4\n"
			 "	stxr %w2, %1, %3\n"
			 "	cbnz %w2, 1b"
			 : "=&r"(before), "=&r"(sum), "=&r"(failed), "+Q"(*word)
			 : "r"(value)
			 : "memory");
	return before;
}

static inline void arch_pause(void)
{
	__asm__ volatile("yield" ::: "memory");
}

/* Whether a wrapped function returns to `code`, in generated code: no code is generated for this CPU. */
static inline bool arch_is_wrapped_return(const uint8_t *code)
{
	(void)code;
	return false;
}

/* ---- What is put into text ---- */

/* A branch is one aligned instruction, stored at once. */
#define ARCH_JUMP_BYTES 4
#define ARCH_SWITCH_BYTES 4
#define ARCH_NOP { 0x1f, 0x20, 0x03, 0xd5 }
#define ARCH_NOP_SHORT ARCH_NOP
#define ARCH_SKIP { 0x01, 0x00, 0x00, 0x14 }    /* a branch to the next instruction */
#define ARCH_BREAKPOINT { 0x00, 0x00, 0x20, 0xd4 }
#define ARCH_BREAKPOINT_BYTES 4

/* The branch that leads from `site` to `target`, which is within 128 MiB of it. */
static inline void arch_jump(uint8_t bytes[ARCH_JUMP_BYTES], uint64_t site, uint64_t target)
{
	uint32_t branch = 0x14000000 | ((uint32_t)((target - site) >> 2) & 0x3ffffff);
	for (int i = 0; i < 4; i++)
		bytes[i] = (uint8_t)(branch >> 8 * i);
}

#endif
