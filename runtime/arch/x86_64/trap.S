/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Where the handler of SIGTRAP returns to: the instructions by which debuggers and unwinders know the end of a handler.
 */
#include <asm/unistd.h>

	.text
	.globl nopal_trap_return
	.type nopal_trap_return, @function
	.balign 16
nopal_trap_return:
	mov $__NR_rt_sigreturn, %rax
	syscall
	.size nopal_trap_return, . - nopal_trap_return

	.section .note.GNU-stack, "", @progbits
