/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * What runtime/core needs of the CPU: x86-64.
 */
#ifndef NOPAL_ARCH_H
#define NOPAL_ARCH_H

#include <stdbool.h>
#include <stdint.h>

/* Compare and swap that is atomic against this thread's own signal handlers, not against other threads: no lock
 * prefix, since an instruction is never torn by a signal. */
static inline bool arch_compare_exchange_local(uint64_t *word, uint64_t expected, uint64_t desired)
{
	bool done;
	__asm__ volatile("cmpxchgq %3, %0"
			 : "+m"(*word), "=@ccz"(done), "+a"(expected)
			 : "r"(desired)
			 : "memory");
	return done;
}

/* Stores {low, high} into 16 aligned bytes by one instruction, which no signal of this thread can divide. */
static inline void arch_store_pair_local(void *pair, uint64_t low, uint64_t high)
{
	uint64_t *word = pair;
	uint64_t seen_low = word[0], seen_high = word[1];
	bool done;
	do {
		__asm__ volatile("cmpxchg16b %0"
				 : "+m"(*(__uint128_t *)pair), "=@ccz"(done), "+a"(seen_low), "+d"(seen_high)
				 : "b"(low), "c"(high)
				 : "memory");
	} while (!done);
}

static inline void arch_pause(void)
{
	__asm__ volatile("pause" ::: "memory");
}

#endif
