/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Macros of the assembly files: changes of the stack pointer that unwinders are told of, and the begin of a record.
 */
#include "patch.h"
#include "process.h"

#define NOPAL_RED_ZONE 128      /* what a leaf function may keep below its stack pointer */
#define NOPAL_EXIT_WORD 7       /* from the address that a wrapped function returns to: the record word of its exit */

	.macro push_register register
	push \register
	.cfi_adjust_cfa_offset 8
	.endm

	.macro pop_register register
	pop \register
	.cfi_adjust_cfa_offset -8
	.endm

#define DIRECTION_OR_ALIGNMENT 0x40400

/* Calls a C function by the rules of C: with an aligned stack, the direction flag clear, and unaligned accesses
 * allowed. If the program's flags differ, they are restored afterwards. Only then are all flags written: in a
 * single-stepped program, pushf would store the trap flag. %rbp stays the program's. */
	.macro call_aligned function
	push_register %rbx
	.cfi_rel_offset %rbx, 0
	mov %rsp, %rbx
	.cfi_remember_state
	.cfi_def_cfa_register %rbx
	pushf
	testl $DIRECTION_OR_ALIGNMENT, (%rsp)
	jz .Lusual\@
	push $0
	popf
.Lusual\@:
	and $-16, %rsp
	call \function
	lea -8(%rbx), %rsp
	testl $DIRECTION_OR_ALIGNMENT, (%rsp)
	jz .Lback\@
	popf
.Lback\@:
	mov %rbx, %rsp
	.cfi_restore_state
	pop_register %rbx
	.cfi_restore %rbx
	.endm

/* A constant in CFI that the tool replaces by process.mirror - 8. */
#define MIRROR_OF_SLOT 0xf7, 0x6e, 0x6f, 0x70, 0x61, 0x6c, 0x2e, 0x6d

/* The return address is in the mirror: DW_CFA_expression(16) { const8s MIRROR - 8; plus }, with the CFA on the
 * stack. */
	.macro cfi_return_address_in_mirror
	.cfi_escape 0x10, 16, 10, 0x0f, MIRROR_OF_SLOT, 0x22
	.endm

/* The return address is where the call put it. Not .cfi_restore: libgcc takes that for "not saved anywhere". */
	.macro cfi_return_address_in_slot
	.cfi_offset 16, -8
	.endm

	.macro patch kind, bytes_before_here
.Lfield\@:
	.pushsection .nopal_patches, "", @progbits
	.quad .Lfield\@ - \bytes_before_here, \kind
	.popsection
	.endm

/* The clock in %edx:%eax. The processor may read it before earlier loads are complete, such as that of a lock that
 * another thread released after its own event. A fence prevents that, and takes longer than reading the clock. */
	.macro read_clock
	.byte 0x0f, 0x1f, 0x00          /* a NOP, or 0f ae e8: lfence */
	patch PATCH_ORDER, 3
	rdtsc
	.endm

/* Loads the base of %fs into %rax. It may point to no memory, so it must not be read through %fs; the first word of all
 * control blocks holds it too, for machines without rdfsbase. */
	.macro read_thread_pointer
	.byte 0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0  /* mov %fs:0, %rax */
	patch PATCH_POINTER, 9
	.endm

/* Loads the thread's own context into %r9 and its position into %r8, if %fs points to a known control block. Changes
 * %eax. If the context is not at its first place in the table, jumps to \further: look_further.
 *
 * The context is loaded from the control block, once that is known. rdfsbase is slow, and the processor need not wait
 * for it if only a jump depends on it. */
	.macro check_context slow, further
	read_thread_pointer
	imul $NOPAL_THREAD_HASH, %eax, %r9d
	movabs $0, %r8
	patch PATCH_THREADS, 8
	shr $NOPAL_THREAD_SHIFT, %r9d
	cmp %rax, (%r8, %r9, 8)
	jne \further
	mov %fs:0, %r9d
	imul $NOPAL_THREAD_HASH, %r9d, %r9d
	shr $NOPAL_THREAD_SHIFT, %r9d
\further\()_found:
	mov NOPAL_THREADS_CONTEXTS(%r8, %r9, 8), %r9
	mov %fs:0, %eax
	patch PATCH_THREAD_SLOT, 4
	cmp NOPAL_CONTEXT_TOKEN(%r9), %eax
	jne \slow
	mov NOPAL_CONTEXT_POSITION(%r9), %r8
	.endm

/* Searches on in the table, from a place that holds another thread pointer, or none. */
	.macro look_further slow, further
\further:
	inc %r9d
	and $(NOPAL_THREADS - 1), %r9d
	cmpq $0, (%r8, %r9, 8)
	je \slow
	cmp %rax, (%r8, %r9, 8)
	jne \further
	jmp \further\()_found
	.endm

/* ---- Records of events that notes define --------------------------------------------------------------------
 *
 * The steps are those of record.S; mark.c has them in C. */
#define MARK_EVENT 16           /* offsets in struct nopal_mark */
#define MARK_SHAPE 24

/* Reserves a record of event \event with %rdi words after its clock; %rdx is the program's stack pointer. Returns the
 * record's address in %rax, and the clock in %rdx, which must be stored after the first word, when all else is written.
 * Changes %rsi, %r8 and %r9 too. */
	.macro begin_record event, slow, further
	check_context \slow, \further
	sub NOPAL_CONTEXT_STACK_LOW(%r9), %rdx
	cmp NOPAL_CONTEXT_STACK_SPAN(%r9), %rdx
	jae \slow
	lea 16(, %rdi, 8), %esi
	lea -1(%r8), %eax
	and $(NOPAL_CHUNK_BYTES - 1), %eax
	add %esi, %eax
	cmp $(NOPAL_CHUNK_BYTES - 1), %eax
	ja \slow
	read_clock
	cmp NOPAL_CONTEXT_CLOCK_HIGH(%r9), %edx
	jne \slow
	shl $32, %rdx
	or %rax, %rdx
	mov %r8, %rax
	add %r8, %rsi
	cmpxchg %rsi, NOPAL_CONTEXT_POSITION(%r9)
	jne \slow
	mov \event, %esi
	mov %edx, (%rax)
	shl $4, %esi
	or $NOPAL_KIND_EXTENDED, %esi
	mov %esi, 4(%rax)
	.endm
