/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The CPU operations that runtime/core needs, on x86-64.
 */
#ifndef NOPAL_ARCH_H
#define NOPAL_ARCH_H

#include <stdbool.h>
#include <stdint.h>

/* Compare and swap that is atomic with respect to this thread's own signal handlers, but not to other threads: it has
 * no lock prefix, since a signal never splits an instruction. */
static inline bool arch_compare_exchange_local(uint64_t *word, uint64_t expected, uint64_t desired)
{
	bool done;
	__asm__ volatile("cmpxchgq %3, %0"
			 : "+m"(*word), "=@ccz"(done), "+a"(expected)
			 : "r"(desired)
			 : "memory");
	return done;
}

/* The same for two words, 16 aligned bytes. If they differ from `expected`, it is set to their values, read by the same
 * instruction. */
static inline bool arch_compare_exchange_pair_local(void *pair, uint64_t expected[2], uint64_t low, uint64_t high)
{
	bool done;
	__asm__ volatile("cmpxchg16b %0"
			 : "+m"(*(__uint128_t *)pair), "=@ccz"(done), "+a"(expected[0]), "+d"(expected[1])
			 : "b"(low), "c"(high)
			 : "memory");
	return done;
}

/* Adds to a word, equally atomically, and returns its previous value. */
static inline uint64_t arch_add_local(uint64_t *word, uint64_t value)
{
	__asm__ volatile("xaddq %1, %0" : "+m"(*word), "+r"(value) : : "memory", "cc");
	return value;
}

static inline void arch_pause(void)
{
	__asm__ volatile("pause" ::: "memory");
}

/* Whether a wrapped function returns to `code`, in generated code: lea -8(%rsp), %rsp is there, and nowhere else in a
 * thunk. */
static inline bool arch_is_wrapped_return(const uint8_t *code)
{
	static const uint8_t after_call[] = { 0x48, 0x8d, 0x64, 0x24, 0xf8 };
	for (unsigned i = 0; i < sizeof after_call; i++)
		if (code[i] != after_call[i])
			return false;
	return true;
}

/* ---- What is put into text ---- */

#define ARCH_JUMP_BYTES 5
#define ARCH_SWITCH_BYTES 2             /* stored at once where they are aligned; also the length of a short jump */
#define ARCH_NOP { 0x0f, 0x1f, 0x44, 0x00, 0x00 }
#define ARCH_NOP_SHORT { 0x66, 0x90 }
#define ARCH_SKIP { 0xeb, ARCH_JUMP_BYTES - ARCH_SWITCH_BYTES }   /* a short jump behind a window of ARCH_JUMP_BYTES */
#define ARCH_BREAKPOINT { 0xcc }
#define ARCH_BREAKPOINT_BYTES 1

/* The jump that leads from `site` to `target`, which is within 2 GiB of it. */
static inline void arch_jump(uint8_t bytes[ARCH_JUMP_BYTES], uint64_t site, uint64_t target)
{
	uint32_t distance = (uint32_t)(target - (site + ARCH_JUMP_BYTES));
	bytes[0] = 0xe9;
	for (int i = 0; i < 4; i++)
		bytes[1 + i] = (uint8_t)(distance >> 8 * i);
}

#endif
