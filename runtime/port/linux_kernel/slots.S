/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * Room for the code that exits jump to, 16 bytes each. It stands in the module's own text, with the stack as at a return:
 * so the kernel's unwinder knows it. text.c fills it in, before anything jumps there:
 *
 *   return   41 bb WORD   mov $WORD, %r11d        tail jump   41 bb WORD   mov $WORD, %r11d
 *            e9 REL       jmp nopal_return                    e8 REL       call nopal_tail
 *            cc …                                             e9 REL       jmp TARGET
 *
 * Behind it are gates to functions that the kernel does not export: where it checks indirect branches, it may have
 * removed the endbr64 that makes such a function a valid target.
 *
 *   gate     f3 0f 1e fa  endbr64
 *            e9 REL       jmp FUNCTION
 */
#include <linux/linkage.h>
#include "slots.h"

	.section .text.nopal_slots, "ax"
	.balign 64
SYM_FUNC_START(nopal_slots)
	.rept 2 * NOPAL_SLOTS
	.byte 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0   /* a NOP */
	.endr
	RET
SYM_FUNC_END(nopal_slots)
