/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * What a connected marker calls. Probes are ordinary functions, so all that these may change is saved: nothing of it is
 * where the marker is, which keeps only what it must.
 */
#include "macros.h"

	.text

#define BELOW 120               /* what a leaf function may keep below the return address */
#define SAVED 72
#define HEADER 512              /* of an XSAVE area: 64 bytes that must be 0 at first */

/* %rax = the values, %r11 = the marker, (%rsp) = return address, %r10 = the word that was there before. */
	.globl library_called
	.hidden library_called
	.type library_called, @function
	.balign 64
library_called:
	.cfi_startproc
	lea -BELOW(%rsp), %rsp
	.cfi_adjust_cfa_offset BELOW
	push_register %rax
	push_register %rcx
	push_register %rdx
	push_register %rsi
	push_register %rdi
	push_register %r8
	push_register %r9
	push_register %r10
	push_register %r11
	mov SAVED + BELOW(%rsp), %rcx
	push_register %rcx
	.cfi_rel_offset 16, 0
	mov %r10, SAVED + BELOW + 8(%rsp)
	push_register %rbp
	.cfi_rel_offset %rbp, 0
	mov %rsp, %rbp
	.cfi_remember_state
	.cfi_def_cfa_register %rbp
	mov %r11, %rdi
	mov %rax, %rsi
	sub library_vector_bytes(%rip), %rsp
	and $-64, %rsp
	cld
	mov library_vector_parts(%rip), %eax
	xor %edx, %edx
	test %eax, %eax
	jz 1f
	.irp offset, 0, 8, 16, 24, 32, 40, 48, 56
	mov %rdx, HEADER + \offset(%rsp)
	.endr
	xsavec64 (%rsp)
	call library_dispatch
	mov library_vector_parts(%rip), %eax
	xor %edx, %edx
	xrstor64 (%rsp)
	jmp 2f
1:	fxsave64 (%rsp)
	call library_dispatch
	fxrstor64 (%rsp)
2:	mov %rbp, %rsp
	.cfi_restore_state
	pop_register %rbp
	.cfi_restore %rbp
	pop_register %rcx
	mov %rcx, SAVED + BELOW(%rsp)
	cfi_return_address_in_slot
	pop_register %r11
	pop_register %r10
	pop_register %r9
	pop_register %r8
	pop_register %rdi
	pop_register %rsi
	pop_register %rdx
	pop_register %rcx
	pop_register %rax
	lea BELOW(%rsp), %rsp
	.cfi_adjust_cfa_offset -BELOW
	/* Call the tool's function: once set, it is never 0 again. */
	cmpq $0, 8(%r11)
	je 3f
	jmp *8(%r11)
3:	ret
	.cfi_endproc
	.size library_called, . - library_called

	.section .note.GNU-stack, "", @progbits
