/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The function that a marker calls while it is on, by the rules of struct nopal_marker in include/nopal.h.
 */
#include "macros.h"
#include "process.h"

	.text

#define BELOW 120               /* what a leaf function may keep below the return address */
#define SAVED 56                /* what is pushed below that */
#define RETURN (SAVED + BELOW)  /* from %rsp then */
#define VALUES 48

#define WORDS_ONLY 15           /* a shape up to this is a number of words */

/* %rax = the values, %r11 = the marker, (%rsp) = return address, %r10 = the word that was there before, all other
 * registers the program's. The values may begin where the return address is, so it is kept in %rcx meanwhile.
 *
 * The steps are those of mark.c, which handles the rare cases: text, and the slow path. */
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
	mov RETURN(%rsp), %rcx
	.cfi_register 16, %rcx
	mov %r10, RETURN(%rsp)
	mov MARK_SHAPE(%r11), %rdi
	cmp $WORDS_ONLY, %rdi
	ja .Lslow
	lea RETURN + 8(%rsp), %rdx
	begin_record MARK_EVENT(%r11), .Lslow, .Lfurther
	mov VALUES(%rsp), %r8
	test %edi, %edi
	jz .Lcopied
.Lcopy:
	mov -8(%r8, %rdi, 8), %rsi
	mov %rsi, 8(%rax, %rdi, 8)
	dec %edi
	jnz .Lcopy
.Lcopied:
	mov %rdx, 8(%rax)
.Ldone:
	.cfi_remember_state
	mov %rcx, RETURN(%rsp)
	cfi_return_address_in_slot
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
	.cfi_restore_state
	look_further .Lslow, .Lfurther
.Lslow:
	push_register %rcx
	.cfi_rel_offset 16, 0
	push_register %r10
	push_register %r11
	mov %r11, %rdi
	mov VALUES + 24(%rsp), %rsi
	lea RETURN + 32(%rsp), %rdx
	call_aligned nopal_mark
	pop_register %r11
	pop_register %r10
	pop_register %rcx
	.cfi_register 16, %rcx
	jmp .Ldone
	.cfi_endproc
	.size nopal_stub_mark, . - nopal_stub_mark

	.section .note.GNU-stack, "", @progbits
