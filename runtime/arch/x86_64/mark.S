/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * What a marker calls that is on: by the rules of struct nopal_marker in include/nopal.h.
 */
#include "macros.h"

	.text

#define BELOW 120               /* what a leaf function may keep below the return address */
#define SAVED 72

/* %rax = the values, %r11 = the marker, (%rsp) = return address, %r10 = what was there, all other registers the
 * program's. The values may be where the return address is now, so that goes elsewhere meanwhile. */
	.globl nopal_stub_mark
	.type nopal_stub_mark, @function
	.balign 64
nopal_stub_mark:
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
	mov %r11, %rdi
	mov %rax, %rsi
	lea SAVED + BELOW + 16(%rsp), %rdx
	call_aligned nopal_mark
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
	ret
	.cfi_endproc
	.size nopal_stub_mark, . - nopal_stub_mark

	.section .note.GNU-stack, "", @progbits
