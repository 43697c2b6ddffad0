/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The function that the entry of a hooked function calls. It preserves the registers that may hold arguments: general
 * registers, and vector registers 0 to 7. Compilers know that the entry of such a function may change, and expect no
 * more of other registers than after any call.
 */
#include "hooked.h"
#include "macros.h"

	.text

#define SAVED 9                 /* words, before %rbp */

	.macro save_registers
	.irp register, rax, rcx, rdx, rsi, rdi, r8, r9, r10
	push_register %\register
	.endr
	.endm

	.macro restore_registers
	.irp register, r10, r9, r8, rdi, rsi, rdx, rcx, rax
	pop_register %\register
	.endr
	.endm

	.macro keep move, name, bytes
	sub $8 * \bytes, %rsp
	and $-64, %rsp
	.irp number, 0, 1, 2, 3, 4, 5, 6, 7
	\move %\name\number, \number * \bytes(%rsp)
	.endr
	.endm

	.macro bring_back move, name, bytes
	.irp number, 0, 1, 2, 3, 4, 5, 6, 7
	\move \number * \bytes(%rsp), %\name\number
	.endr
	.endm

/* In %\name\()8, and %ymm9 is 0. */
	.macro or_of_all or, name
	\or %\name\()0, %\name\()1, %\name\()8
	\or %\name\()2, %\name\()3, %\name\()9
	\or %\name\()4, %\name\()5, %\name\()10
	\or %\name\()6, %\name\()7, %\name\()11
	\or %\name\()8, %\name\()9, %\name\()8
	\or %\name\()10, %\name\()11, %\name\()10
	\or %\name\()8, %\name\()10, %\name\()8
	vxorps %ymm9, %ymm9, %ymm9
	.endm

/* (%rsp) = the address behind the call at the function's entry, 8(%rsp) = the function's return address. */
	.globl library_hooked
	.hidden library_hooked
	.type library_hooked, @function
	.balign 64
library_hooked:
	.cfi_startproc
	.cfi_remember_state
	mov library_passing@gottpoff(%rip), %r11
	mov %fs:(%r11), %r11
	test %r11, %r11
	jz 8f
1:	cmpb $0, (%r11)
	jne 9f
	/* Only this thread stores there, before it loads the hook's address; hook.c relies on that order by membarrier. */
	movb $1, (%r11)
	save_registers
	push_register %r11
	mov SAVED * 8(%rsp), %rdi
	sub $5, %rdi
	mov (SAVED + 1) * 8(%rsp), %rsi
	push_register %rbp
	.cfi_rel_offset %rbp, 0
	mov %rsp, %rbp
	.cfi_remember_state
	.cfi_def_cfa_register %rbp
	cmpb $KEEP_AVX, library_vectors(%rip)
	jb 3f
	ja 2f
	or_of_all vorps, ymm
	jmp 4f
2:	or_of_all vporq, zmm
	vextracti64x4 $1, %zmm8, %ymm9
4:	vextractf128 $1, %ymm8, %xmm8
	vorps %ymm8, %ymm9, %ymm9
	vptest %ymm9, %ymm9
	jnz 5f
	/* Functions with arguments in the upper parts are rare. Afterwards these parts are marked unused: some processors are
	 * slow otherwise. */
	keep movaps, xmm, 16
	call *library_hook(%rip)
	vzeroupper
	bring_back movaps, xmm, 16
	jmp 7f
3:	keep movaps, xmm, 16
	call *library_hook(%rip)
	bring_back movaps, xmm, 16
	jmp 7f
5:	cmpb $KEEP_AVX_512, library_vectors(%rip)
	je 6f
	keep vmovaps, ymm, 32
	call *library_hook(%rip)
	bring_back vmovaps, ymm, 32
	jmp 7f
6:	keep vmovaps, zmm, 64
	call *library_hook(%rip)
	bring_back vmovaps, zmm, 64
7:	mov %rbp, %rsp
	.cfi_restore_state
	pop_register %rbp
	.cfi_restore %rbp
	pop_register %r11
	restore_registers
	movb $0, (%r11)
	ret
	/* The thread's first hook. The C function uses no vector registers. */
	.cfi_restore_state
8:	save_registers
	call_aligned library_passing_of_thread
	mov %rax, %r11
	restore_registers
	test %r11, %r11
	jnz 1b
9:	lock incq library_hooks_cut_off(%rip)
	ret
	.cfi_endproc
	.size library_hooked, . - library_hooked

/* Called by the entries of functions compiled with -pg -mfentry, until they are prepared. */
	.globl __fentry__
	.type __fentry__, @function
__fentry__:
	.cfi_startproc
	ret
	.cfi_endproc
	.size __fentry__, . - __fentry__

	.section .note.GNU-stack, "", @progbits
