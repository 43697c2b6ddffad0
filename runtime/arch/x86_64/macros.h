/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * What the assembly files share: changes of the stack pointer that unwinders are told of.
 */
	.macro push_register register
	push \register
	.cfi_adjust_cfa_offset 8
	.endm

	.macro pop_register register
	pop \register
	.cfi_adjust_cfa_offset -8
	.endm

/* Calls a C function on a stack that is aligned for it. */
	.macro call_aligned function
	push_register %rbp
	.cfi_rel_offset %rbp, 0
	mov %rsp, %rbp
	.cfi_remember_state
	.cfi_def_cfa_register %rbp
	and $-16, %rsp
	call \function
	mov %rbp, %rsp
	.cfi_restore_state
	pop_register %rbp
	.cfi_restore %rbp
	.endm
