/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The code that a connected marker calls, and the code that calls the program's functions. The marker itself saves only
 * the registers that it must. All others that may change are saved here: general registers always, and the rest around
 * ordinary functions alone.
 */
#include "macros.h"

	.text

#define BELOW 120               /* what a leaf function may keep below the return address */
#define SAVED 72

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
	and $-16, %rsp
	cld
	call library_dispatch
	mov %rbp, %rsp
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
	je 1f
	jmp *8(%r11)
1:	ret
	.cfi_endproc
	.size library_called, . - library_called

/* ---- An ordinary function ------------------------------------------------------------------------------------
 *
 * XSAVE and XRSTOR take 300 cycles. Plain stores take a tenth of that, so the processor is asked what is in use
 * (XINUSE), and that is stored. Registers that are not in use are zero, and are made zero again. */

/* Bits of XCR0 and XINUSE. */
#define X87 0x01
#define AVX 0x04
#define OPMASK 0x20
#define ZMM 0x40                /* the upper halves of zmm0 to zmm15 */
#define HIGH_ZMM 0x80           /* zmm16 to zmm31 */
#define AVX_512 (OPMASK | ZMM | HIGH_ZMM)

/* The frame, from an address that is a multiple of 64. */
#define FXSAVE_AREA 0           /* 512 bytes; then of XRSTOR, with a header of 64 bytes behind them */
#define HEADER 512
#define LOW_REGISTERS 576       /* 16 of 64 bytes */
#define HIGH_REGISTERS 1600     /* 16 of 64 bytes */
#define MASKS 2624              /* 8 of 8 bytes */
#define MXCSR 2688
#define MXCSR_AFTER 2692
#define STATUS 2696             /* of the x87 unit */
#define LIVE 2698               /* whether the x87 unit holds values */
#define FRAME 2752

#define TOP_OR_PENDING 0x3880   /* of the x87 status: registers are pushed, or an exception is to be raised */
#define CLASS 0x4500
#define CLASS_EMPTY 0x4100
#define EXCEPTIONS 0x3f

	.macro move_low instruction, name, loads
	.irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	.if \loads
	\instruction LOW_REGISTERS + 64 * \number(%rsp), %\name\number
	.else
	\instruction %\name\number, LOW_REGISTERS + 64 * \number(%rsp)
	.endif
	.endr
	.endm

	.macro move_high loads
	.irp number, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	.if \loads
	vmovaps HIGH_REGISTERS + 64 * (\number - 16)(%rsp), %zmm\number
	.else
	vmovaps %zmm\number, HIGH_REGISTERS + 64 * (\number - 16)(%rsp)
	.endif
	.endr
	.endm

/* void library_call_ordinary(void *data, const struct nopal_description *marker, const uint64_t *values, nopal_probe *probe) */
	.globl library_call_ordinary
	.hidden library_call_ordinary
	.type library_call_ordinary, @function
	.balign 64
library_call_ordinary:
	.cfi_startproc
	push_register %rbp
	.cfi_rel_offset %rbp, 0
	mov %rsp, %rbp
	.cfi_def_cfa_register %rbp
	push %rbx
	.cfi_offset %rbx, -24
	push %r12
	.cfi_offset %r12, -32
	sub $FRAME, %rsp
	and $-64, %rsp
	mov %rdx, %r10
	mov %rcx, %r11
	/* %r12 = the parts that exist, %rbx = the parts in use. */
	mov library_vector_state(%rip), %r12d
	mov %r12d, %ebx
	test %r12d, %r12d
	jns 1f
	mov $1, %ecx
	xgetbv
	mov %eax, %ebx
1:	stmxcsr MXCSR(%rsp)

	/* The x87 unit. Functions are called with all of its registers empty, and leave them so. If they are, the unit is
	 * left alone. The class of st(0) tells that where none is pushed: MMX code leaves all registers valid. fxam would
	 * raise an exception that is pending; such a state is saved. */
	movl $0, STATUS(%rsp)
	test $X87, %bl
	jz 3f
	fnstsw %ax
	mov %ax, STATUS(%rsp)
	test $TOP_OR_PENDING, %ax
	jnz 2f
	fxam
	fnstsw %ax
	and $CLASS, %ax
	cmp $CLASS_EMPTY, %ax
	je 3f
2:	movb $1, LIVE(%rsp)
	fxsave64 FXSAVE_AREA(%rsp)
	fnclex
	emms
3:
	/* Registers 0 to 15, as far as they are in use. */
	test $ZMM, %bl
	jnz 5f
	test $AVX, %bl
	jnz 4f
	move_low movaps, xmm, 0
	jmp 6f
4:	move_low vmovaps, ymm, 0
	vzeroupper
	jmp 6f
5:	move_low vmovaps, zmm, 0
	vzeroupper
6:	test $HIGH_ZMM, %bl
	jz 7f
	move_high 0
7:	test $OPMASK, %bl
	jz 8f
	.irp number, 0, 1, 2, 3, 4, 5, 6, 7
	kmovq %k\number, MASKS + 8 * \number(%rsp)
	.endr
8:
	mov %r10, %rdx
	call *%r11

	cmpb $0, LIVE(%rsp)
	jne 10f
	/* Exceptions that the function has met are not the program's. */
	fnstsw %ax
	xor STATUS(%rsp), %ax
	test $EXCEPTIONS, %al
	jz 11f
	fnstenv FXSAVE_AREA(%rsp)
	and $EXCEPTIONS, %ax
	xor %ax, FXSAVE_AREA + 4(%rsp)
	fldenv FXSAVE_AREA(%rsp)
	jmp 11f
10:	fxrstor64 FXSAVE_AREA(%rsp)
11:
	/* Registers 16 to 31 and masks that were not in use are zero again. */
	test $AVX_512, %r12b
	jz 12f
	mov %ebx, %eax
	not %eax
	test $OPMASK | HIGH_ZMM, %al
	jz 12f
	mov $1, %ecx
	xgetbv
	not %ebx
	and %ebx, %eax
	not %ebx
	and $OPMASK | HIGH_ZMM, %eax
	jz 12f
	xor %edx, %edx
	.irp offset, 0, 8, 16, 24, 32, 40, 48, 56
	mov %rdx, HEADER + \offset(%rsp)
	.endr
	xrstor64 FXSAVE_AREA(%rsp)
12:	test $OPMASK, %bl
	jz 13f
	.irp number, 0, 1, 2, 3, 4, 5, 6, 7
	kmovq MASKS + 8 * \number(%rsp), %k\number
	.endr
13:	test $HIGH_ZMM, %bl
	jz 14f
	move_high 1
14:	test $ZMM, %bl
	jnz 17f
	test $AVX, %bl
	jnz 16f
	/* Their upper parts were zero. */
	test $AVX, %r12b
	jz 15f
	vzeroupper
15:	move_low movaps, xmm, 1
	jmp 18f
16:	move_low vmovaps, ymm, 1
	jmp 18f
17:	move_low vmovaps, zmm, 1
18:
	stmxcsr MXCSR_AFTER(%rsp)
	mov MXCSR(%rsp), %eax
	cmp MXCSR_AFTER(%rsp), %eax
	je 19f
	ldmxcsr MXCSR(%rsp)
19:	lea -16(%rbp), %rsp
	pop %r12
	pop %rbx
	pop %rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size library_call_ordinary, . - library_call_ordinary

	.section .note.GNU-stack, "", @progbits
