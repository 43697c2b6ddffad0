/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The function that the detour of a probed instruction calls. It gives the probe all general registers and the flags,
 * and takes them back. The code that calls functions which may change the rest preserves it.
 */
#include "macros.h"

	.text

/* The struct nopal_registers on the stack: 15 registers, flags, then what is in the places of `ip` and `sp`. */
#define AX 112
#define FLAGS 120
#define BACK 128                /* the return address to the detour */
#define PLACE 136               /* struct place; its address comes first */
#define RED_ZONE 128

/* Flags that only popf restores: single steps, the direction, alignment checks. */
#define RARE_FLAGS 0x40500

/* (%rsp) = the return address, 8(%rsp) = the place; the red zone is above. */
	.globl library_probed
	.hidden library_probed
	.type library_probed, @function
	.balign 64
library_probed:
	.cfi_startproc
	pushfq
	.cfi_adjust_cfa_offset 8
	.irp register, rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
	push_register %\register
	.endr
	mov BACK(%rsp), %rbx
	mov PLACE(%rsp), %rdi
	mov (%rdi), %rax
	mov %rax, BACK(%rsp)
	lea PLACE + 8 + RED_ZONE(%rsp), %rax
	mov %rax, PLACE(%rsp)
	mov %rsp, %rsi
	mov %rsp, %rbp
	.cfi_remember_state
	.cfi_def_cfa_register %rbp
	and $-16, %rsp
	cld
	call library_probe
	mov %rbp, %rsp
	.cfi_restore_state
	mov %rbx, BACK(%rsp)
	mov FLAGS(%rsp), %ecx
	test $RARE_FLAGS, %ecx
	jnz 1f
	/* The status flags: the low byte as it is, and overflow by an addition. */
	mov %ecx, %eax
	shl $8, %eax
	shr $11, %ecx
	and $1, %ecx
	mov %cl, %al
	add $0x7f, %al
	sahf
	.cfi_remember_state
	.irp register, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax
	pop_register %\register
	.endr
	lea 8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_restore_state
1:	.irp register, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax
	pop_register %\register
	.endr
	popfq
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size library_probed, . - library_probed

	.section .note.GNU-stack, "", @progbits
