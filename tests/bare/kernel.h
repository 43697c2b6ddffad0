/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The smallest kernel that can be traced: two processors, a timer, two serial lines.
 */
#ifndef KERNEL_H
#define KERNEL_H

#define PROCESSORS 2
#define STACK_BYTES 65536
#define VECTORS 35              /* the processor's own, and these: */
#define VECTOR_TIMER 32
#define VECTOR_INTERRUPTED 33
#define VECTOR_SPURIOUS 34
#define TRAMPOLINE 0x8000       /* where the second processor begins, in its real mode */

#ifndef __ASSEMBLER__

#include <stddef.h>
#include <stdint.h>

/* ---- work.c: the traced functions ---- */

/* Calls `middle` and `jump` so many times, which call `leaf` three times in all. */
uint64_t work(uint32_t processor, uint64_t times);

/* Called by the interrupt of the timer. */
void tick(uint64_t *ticks);

#endif
#endif
