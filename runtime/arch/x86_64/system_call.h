/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The CPU operation that port/linux needs, on x86-64: a system call.
 */
#ifndef NOPAL_SYSTEM_CALL_H
#define NOPAL_SYSTEM_CALL_H

#include <stdint.h>

/* Returns the kernel's result, or -errno. */
static inline long system_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long answer;
	__asm__ volatile("syscall"
			 : "=a"(answer)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return answer;
}

/* After all earlier loads are complete. */
static inline uint64_t counter_read(void)
{
	uint32_t low, high;
	__asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
	return low | (uint64_t)high << 32;
}

/* The base of %fs. It is in record.S, since the tool chooses the instruction that reads it. */
uintptr_t nopal_thread_pointer(void);

#endif
