/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The detour of a probe, and the code behind it, which stands once in an arena. A probe may be at any instruction: all
 * registers and flags are the program's, and so is the red zone.
 */
#include "macros.h"
#include "process.h"

/* ---- The detour ---------------------------------------------------------------------------------------------
 *
 * The first two bytes are the switch, as in a thunk. The tool fills in a push for each value that is a register, the
 * last one first; the probe (struct nopal_mark); the function that records it; and the distance of the last `lea`. It
 * appends the displaced instructions. The unwind rules depend on the site, so the tool makes them too. No flag changes.
 */
	.section .nopal_thunk, "ax", @progbits
	.globl nopal_detour, nopal_detour_values, nopal_detour_saved, nopal_detour_mark, nopal_detour_call
	.globl nopal_detour_restored, nopal_detour_end
	.balign 16
nopal_detour:
	.byte 0x66, 0x90
	lea -NOPAL_RED_ZONE(%rsp), %rsp
nopal_detour_values:
	push %rcx
nopal_detour_saved:
	.byte 0x48, 0x8d, 0x0d, 0, 0, 0, 0              /* lea mark(%rip), %rcx */
nopal_detour_mark:
	.byte 0xe8, 0, 0, 0, 0                          /* call nopal_stub_probe or nopal_stub_fetch */
nopal_detour_call:
	pop %rcx
nopal_detour_restored:
	.byte 0x48, 0x8d, 0xa4, 0x24, 0, 0, 0, 0        /* lea RED_ZONE + 8 * values(%rsp), %rsp */
nopal_detour_end:

/* ---- Recording ----------------------------------------------------------------------------------------------
 *
 * Stack on entry:  (%rsp) return to the detour   8(%rsp) the program's %rcx   16(%rsp) the values, if any, and behind
 * them the red zone. %rcx = the probe.
 */
	.text

#define SAVED 56                /* what is pushed before the return address */
#define VALUES (SAVED + 16)

/* Records values that are registers. The code between the two labels is the action; measurements of the way to it leave
 * it out. %ah and %al keep the flags: lahf stores all but the overflow flag. */
	.globl nopal_stub_probe, nopal_probe_action, nopal_probe_done
	.type nopal_stub_probe, @function
	.balign 64
nopal_stub_probe:
	.cfi_startproc
	push_register %rax
	lahf
	seto %al
	push_register %rax
	push_register %rdx
	push_register %rsi
	push_register %rdi
	push_register %r8
	push_register %r9
nopal_probe_action:
	mov MARK_SHAPE(%rcx), %edi
	lea VALUES + NOPAL_RED_ZONE(%rsp, %rdi, 8), %rdx
	begin_record MARK_EVENT(%rcx), .Lslow, .Lfurther
	test %edi, %edi
	jz .Lcopied
.Lcopy:
	mov VALUES - 8(%rsp, %rdi, 8), %rsi
	mov %rsi, 8(%rax, %rdi, 8)
	dec %edi
	jnz .Lcopy
.Lcopied:
	mov %rdx, 8(%rax)
nopal_probe_done:
.Ldone:
	.cfi_remember_state
	pop_register %r9
	pop_register %r8
	pop_register %rdi
	pop_register %rsi
	pop_register %rdx
	pop_register %rax
	add $0x7f, %al                  /* overflows if there was 1 in it */
	sahf
	pop_register %rax
	ret
	.cfi_restore_state
	look_further .Lslow, .Lfurther
.Lslow:
	pushf
	.cfi_adjust_cfa_offset 8
	cld                             /* by the rules of C; the program may be inside a backward copy */
	push_register %r10
	push_register %r11
	mov MARK_SHAPE(%rcx), %edi
	lea VALUES + 24(%rsp), %rsi
	lea NOPAL_RED_ZONE(%rsi, %rdi, 8), %rdx
	mov %rcx, %rdi
	call_aligned nopal_mark
	pop_register %r11
	pop_register %r10
	popf
	.cfi_adjust_cfa_offset -8
	jmp .Ldone
	.cfi_endproc
	.size nopal_stub_probe, . - nopal_stub_probe

#define REGISTERS 128           /* bytes of the array that nopal_fetch gets */

/* Records values that need more than registers. */
	.globl nopal_stub_fetch
	.type nopal_stub_fetch, @function
	.balign 64
nopal_stub_fetch:
	.cfi_startproc
	pushf
	.cfi_adjust_cfa_offset 8
	cld
	push_register %r15
	push_register %r14
	push_register %r13
	push_register %r12
	push_register %r11
	push_register %r10
	push_register %r9
	push_register %r8
	push_register %rdi
	push_register %rsi
	push_register %rbp
	push_register %rbp              /* for %rsp */
	push_register %rbx
	push_register %rdx
	push_register %rdx              /* for %rcx */
	push_register %rax
	mov REGISTERS + 16(%rsp), %rax
	mov %rax, 8(%rsp)
	lea REGISTERS + 24 + NOPAL_RED_ZONE(%rsp), %rax
	mov %rax, 32(%rsp)
	mov %rcx, %rdi
	mov %rsp, %rsi
	call_aligned nopal_fetch
	pop_register %rax
	pop_register %rdx
	pop_register %rdx
	pop_register %rbx
	lea 8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	pop_register %rbp
	pop_register %rsi
	pop_register %rdi
	pop_register %r8
	pop_register %r9
	pop_register %r10
	pop_register %r11
	pop_register %r12
	pop_register %r13
	pop_register %r14
	pop_register %r15
	popf
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size nopal_stub_fetch, . - nopal_stub_fetch

	.section .note.GNU-stack, "", @progbits
