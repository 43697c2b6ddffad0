/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The fast path of recording: the code behind the thunks that records entries and exits, which stands once in an arena.
 * It is entered on the traced program's stack, at any time and in any signal handler; it changes no register but the
 * flags and touches no vector state. core/record.c is the slow path, for what it finds missing.
 *
 * Stack on entry: (%rsp) return to the thunk 8(%rsp) the program's %rcx 16(%rsp) the slot %ecx = kind | site << 4; the
 * upper half of %rcx counts the retries.
 *
 * The steps below keep records in order of time, and allow a signal handler to record at any instruction:
 *   1. the thread pointer is known, and the context is this thread's; load the position
 *   2. the stack is known (span 0 forces the slow path, and so keeps a thread that must not read the clock away from
 *      step 4)
 *   3. room for the record?
 *   4. clock; its upper half is the chunk's
 *   5. reserve: compare-and-swap the position against this thread's signal handlers; if one moved it, back to 1: it may
 *      have changed the range of step 2 between our two looks at it, but not without moving the position
 *   6. store the lower word, then the word with the kind
 *
 * A recorded call without arguments and results takes 115 instructions, of which 14 are the thunk's, 53 those of the
 * entry and 48 those of the exit; crates/agent/tests/execution counts them. The record of a call site takes 14 more.
 */
#include "macros.h"
#include "process.h"

#define CHUNK_MASK (NOPAL_CHUNK_BYTES - 1)

	.section .nopal_spare, "", @progbits
	.globl nopal_order, nopal_read_pointer
nopal_order:
	lfence
	.size nopal_order, . - nopal_order
nopal_read_pointer:
	rdfsbase %rax
	.byte 0x0f, 0x1f, 0x40, 0x00    /* a NOP */
	.size nopal_read_pointer, . - nopal_read_pointer

	.text

.macro save_registers
	push_register %rax
	push_register %rdx
	push_register %r8
	push_register %r9
.endm
.macro restore_registers
	pop_register %r9
	pop_register %r8
	pop_register %rdx
	pop_register %rax
.endm
#define SLOT 48                 /* from %rsp after save_registers; the program's: */
#define SAVED_RCX 40
#define SAVED_RAX 24
#define SAVED_RDX 16
#define SAVED_R8 8
#define SAVED_R9 0

/* Step 2; step 1 is check_context. */
.macro check_stack slow
	lea SLOT(%rsp), %rdx
	sub NOPAL_CONTEXT_STACK_LOW(%r9), %rdx
	cmp NOPAL_CONTEXT_STACK_SPAN(%r9), %rdx
	jae \slow
.endm

/* Steps 3 to 5 for a record of \bytes; returns its address in %rax and the clock's lower half in %edx. */
.macro reserve bytes, slow, retry
.if \bytes == 8
	test $CHUNK_MASK, %r8d
	jz \slow
.else
	lea -1(%r8), %eax
	and $CHUNK_MASK, %eax
	cmp $(NOPAL_CHUNK_BYTES - \bytes - 1), %eax
	ja \slow
.endif
	read_clock
	cmp NOPAL_CONTEXT_CLOCK_HIGH(%r9), %edx
	jne \slow
	mov %eax, %edx
	mov %r8, %rax
	add $\bytes, %r8
	cmpxchg %r8, NOPAL_CONTEXT_POSITION(%r9)
	jne \retry
.endm

/* Step 6. %ecx = kind | site << 4. With \words extra words the record is PENDING while they are written. */
.macro store pending=0, words=0
	mov %edx, (%rax)
	lea SLOT(%rsp), %edx
	shl $20, %edx
	and $0xff000000, %edx
	or %ecx, %edx
.if \words
	mov %edx, %r8d
	and $-16, %r8d
	or $\pending, %r8d
	mov %r8d, 4(%rax)
.if \words == 6
	mov %rdi, 8(%rax)
	mov %rsi, 16(%rax)
	mov SAVED_RDX(%rsp), %r8
	mov %r8, 24(%rax)
	mov SAVED_RCX(%rsp), %r8
	mov %r8, 32(%rax)
	mov SAVED_R8(%rsp), %r8
	mov %r8, 40(%rax)
	mov SAVED_R9(%rsp), %r8
	mov %r8, 48(%rax)
.else
	mov SAVED_RAX(%rsp), %r8
	mov %r8, 8(%rax)
.endif
.endif
	mov %edx, 4(%rax)
.endm

/* The record of a call site, of \bytes, before that of its entry, which is at %rax then: both are in one reservation, so
 * no handler comes between them. Keeps the clock in %edx. */
.macro store_call_site bytes
	mov %edx, (%rax)
	lea SLOT(%rsp), %r8d
	shl $20, %r8d
	and $0xff000000, %r8d
	or %ecx, %r8d
	and $-16, %r8d
	or $NOPAL_KIND_PENDING_CALL_SITE, %r8d
	mov %r8d, 4(%rax)
	mov SLOT(%rsp), %r8
	mov %r8, 8(%rax)
	decl 4(%rax)                    /* NOPAL_KIND_CALL_SITE */
	add $\bytes, %rax
.endm

/* With a depth limit, the context holds the slots of the wrapped frames that are open, outermost first. Frames that
 * were left without an exit (longjmp, exceptions) have slots that are not above ours. Returns the number of open frames
 * in %eax. */
.macro frames_above
	mov NOPAL_CONTEXT_DEPTH(%r9), %eax
	lea SLOT(%rsp), %rdx
.Lframe\@:
	test %eax, %eax
	jz .Lcounted\@
	cmp %rdx, NOPAL_CONTEXT_SLOTS - 8(%r9, %rax, 8)
	ja .Lcounted\@
	dec %eax
	jmp .Lframe\@
.Lcounted\@:
.endm

/* The slow path provides what the fast path lacks. Jumps to \retry, or falls through if the event has been recorded or
 * is lost. */
.macro prepare bytes, retry
	push_register %rcx
	push_register %rsi
	push_register %rdi
	push_register %r10
	push_register %r11
	lea SLOT + 40(%rsp), %rdi
	mov %rcx, %rsi
	mov $\bytes, %edx
	call_aligned nopal_prepare
	test %eax, %eax
	pop_register %r11
	pop_register %r10
	pop_register %rdi
	pop_register %rsi
	pop_register %rcx
	jz \retry
.endm

/* Begins again; after the last retry, the slow path counts the event as lost. */
.macro begin_again again, slow
	movabs $(1 << NOPAL_ATTEMPT_SHIFT), %rax
	add %rax, %rcx
	bt $(NOPAL_ATTEMPT_SHIFT + NOPAL_ATTEMPTS_SHIFT), %rcx
	jc \slow
	jmp \again
.endm

/* Records an entry. Returns with carry clear and the return address in the mirror, or with carry set if the call must
 * not be wrapped: a tail call, an entry-only site, a stack without a mirror, a lost event. \call_site: the bytes of a
 * record of the call site, 0 for none; a tail call has none, since its return address is a thunk's. */
.macro entry name, bytes, pending, words, tail, wrap, depth=0, call_site=0
	.globl \name
	.type \name, @function
	.balign 64
\name:
	.cfi_startproc
	save_registers
.Lstart\@:
	check_context .Lslow\@, .Lfurther\@
.if \depth
	frames_above
	.byte 0x3d                      /* cmp imm32, %eax */
	.long 0
	patch PATCH_DEPTH_LIMIT, 4
	jae .Lunrecorded\@
.endif
	check_stack .Lslow\@
.if \wrap
	mov SLOT(%rsp), %eax
	and $MARK_MASK, %eax
	.byte 0x3d                      /* cmp imm32, %eax: the assembler would choose an 8-bit field */
	.long 0
	patch PATCH_MARK, 4
	je .Lperhaps_tail\@
.endif
.Lrecord\@:
	reserve (\bytes + \call_site), .Lslow\@, .Lretry\@
.if \call_site
	store_call_site \call_site
.endif
	store \pending, \words
.if \wrap
	mov SLOT(%rsp), %rax
	movabs $SLOT, %rdx
	patch PATCH_MIRROR, 8
	mov %rax, (%rsp, %rdx)
.if \depth
	frames_above
	/* A handler between the first two stores overwrites our entry with its own slots. */
	mov %rdx, NOPAL_CONTEXT_SLOTS(%r9, %rax, 8)
	inc %eax
	mov %eax, NOPAL_CONTEXT_DEPTH(%r9)
	mov %rdx, NOPAL_CONTEXT_SLOTS - 8(%r9, %rax, 8)
.endif
	.cfi_remember_state
	restore_registers
	clc
	ret
	.cfi_restore_state
.else
	.cfi_remember_state
	restore_registers
	stc
	ret
	.cfi_restore_state
.endif
	look_further .Lslow\@, .Lfurther\@
.Lretry\@:
	begin_again .Lstart\@, .Lslow\@
.Lslow\@:
	prepare (\bytes + \call_site), .Lretry\@
.Lunrecorded\@:
	.cfi_remember_state
	restore_registers
	stc
	ret
	.cfi_restore_state
.if \wrap
	/* The bits are those of arenas: the address may be in this arena, in another one, or match by chance. */
.Lperhaps_tail\@:
	mov SLOT(%rsp), %rax
	lea nopal_image(%rip), %rdx
	sub %rdx, %rax
	.byte 0x48, 0x3d                /* cmp imm32, %rax: the rest of the arena's place may be a library's */
	.long 1 << ARENA_SHIFT
	patch PATCH_MAPPED, 4
	jb .Ltail\@
	push_register %rcx
	push_register %rsi
	push_register %rdi
	push_register %r8
	push_register %r9
	push_register %r10
	push_register %r11
	mov SLOT + 56(%rsp), %rdi
	call_aligned nopal_is_generated
	test %eax, %eax
	pop_register %r11
	pop_register %r10
	pop_register %r9
	pop_register %r8
	pop_register %rdi
	pop_register %rsi
	pop_register %rcx
	jz .Lrecord\@
.Ltail\@:
	reserve \bytes, .Lslow\@, .Lretry\@
	add $(\tail), %ecx
	store \pending, \words
	.cfi_remember_state
	restore_registers
	stc
	ret
	.cfi_restore_state
.endif
	.cfi_endproc
	.size \name, . - \name
.endm

/* Records an exit, and restores the return address from the mirror. */
.macro exit name, bytes, pending, words, depth=0
	.globl \name
	.type \name, @function
	.balign 64
\name:
	.cfi_startproc
	save_registers
.Lstart\@:
	check_context .Lslow\@, .Lfurther\@
	check_stack .Lslow\@
	reserve \bytes, .Lslow\@, .Lretry\@
	store \pending, \words
.if \depth
	frames_above
	mov %eax, NOPAL_CONTEXT_DEPTH(%r9)
.endif
.Lrestore\@:
	movabs $SLOT, %rdx
	patch PATCH_MIRROR, 8
	mov (%rsp, %rdx), %rax
	mov %rax, SLOT(%rsp)
	.cfi_remember_state
	restore_registers
	ret
	.cfi_restore_state
	look_further .Lslow\@, .Lfurther\@
.Lretry\@:
	begin_again .Lstart\@, .Lslow\@
.Lslow\@:
	prepare \bytes, .Lretry\@
	jmp .Lrestore\@
	.cfi_endproc
	.size \name, . - \name
.endm

/* Counts a call of the site in %ecx where the thunk knows no counters, or, if %rdx is NOPAL_COUNT_STEP, goes on where it
 * has counted a call that is to be sampled, by the counters at %rax. Returns with carry set if the call is sampled. Stack
 * on entry: (%rsp) return to the thunk, then what the thunk has pushed: we look for counters by the page that it has
 * looked for. Changes %rax, %rcx and %rdx. */
	.globl nopal_count_slowly
	.type nopal_count_slowly, @function
	.balign 16
nopal_count_slowly:
	.cfi_startproc
	push_register %rsi
	push_register %rdi
	push_register %r8
	push_register %r9
	push_register %r10
	push_register %r11
	lea 56(%rsp), %rdi
	mov %ecx, %esi
	mov %rax, %rcx
	call_aligned nopal_count
	neg %eax
	pop_register %r11
	pop_register %r10
	pop_register %r9
	pop_register %r8
	pop_register %rdi
	pop_register %rsi
	ret
	.cfi_endproc
	.size nopal_count_slowly, . - nopal_count_slowly

/* uintptr_t nopal_thread_pointer(void) */
	.globl nopal_thread_pointer
	.type nopal_thread_pointer, @function
nopal_thread_pointer:
	.cfi_startproc
	read_thread_pointer
	ret
	.cfi_endproc
	.size nopal_thread_pointer, . - nopal_thread_pointer

/* The word holds site number and kind; these entry points define the rest. */
	entry nopal_entry, 8, 0, 0, (NOPAL_KIND_TAIL - NOPAL_KIND_ENTRY), 1
	entry nopal_entry_args, 56, NOPAL_KIND_PENDING_ARGS, 6, (NOPAL_KIND_TAIL_ARGS - NOPAL_KIND_ENTRY_ARGS), 1
	entry nopal_entry_only, 8, 0, 0, 0, 0
	entry nopal_entry_only_args, 56, NOPAL_KIND_PENDING_ARGS, 6, 0, 0
	exit nopal_exit, 8, 0, 0
	exit nopal_exit_result, 16, NOPAL_KIND_PENDING_RESULT, 1
	entry nopal_entry_depth, 8, 0, 0, (NOPAL_KIND_TAIL - NOPAL_KIND_ENTRY), 1, 1
	entry nopal_entry_args_depth, 56, NOPAL_KIND_PENDING_ARGS, 6, (NOPAL_KIND_TAIL_ARGS - NOPAL_KIND_ENTRY_ARGS), 1, 1
	entry nopal_entry_site, 8, 0, 0, (NOPAL_KIND_TAIL - NOPAL_KIND_ENTRY), 1, 0, 16
	entry nopal_entry_args_site, 56, NOPAL_KIND_PENDING_ARGS, 6, (NOPAL_KIND_TAIL_ARGS - NOPAL_KIND_ENTRY_ARGS), 1, 0, 16
	entry nopal_entry_only_site, 8, 0, 0, 0, 0, 0, 16
	entry nopal_entry_only_args_site, 56, NOPAL_KIND_PENDING_ARGS, 6, 0, 0, 0, 16
	entry nopal_entry_site_depth, 8, 0, 0, (NOPAL_KIND_TAIL - NOPAL_KIND_ENTRY), 1, 1, 16
	entry nopal_entry_args_site_depth, 56, NOPAL_KIND_PENDING_ARGS, 6, (NOPAL_KIND_TAIL_ARGS - NOPAL_KIND_ENTRY_ARGS), 1, 1, 16
	exit nopal_exit_depth, 8, 0, 0, 1
	exit nopal_exit_result_depth, 16, NOPAL_KIND_PENDING_RESULT, 1, 1

	.section .note.GNU-stack, "", @progbits
