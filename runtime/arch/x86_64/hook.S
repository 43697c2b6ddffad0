/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The stubs that hooks jump to, and the landing pad of exceptions.
 */
#include "macros.h"
#include "process.h"

	.text

/* The handler is called first; then the function runs with all registers as they were. (%rsp) = body, 8(%rsp) = return
 * address. void handler(struct nopal_arguments *). */
.macro before_stub name, handler
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
	.cfi_def_cfa_offset 16
	push_register %r11
	push_register %r10
	push_register %rax
	push_register %r9
	push_register %r8
	push_register %rcx
	push_register %rdx
	push_register %rsi
	push_register %rdi
	mov %rsp, %rdi
	call_aligned \handler
	pop_register %rdi
	pop_register %rsi
	pop_register %rdx
	pop_register %rcx
	pop_register %r8
	pop_register %r9
	pop_register %rax
	pop_register %r10
	pop_register %r11
	ret
	.cfi_endproc
	.size \name, . - \name
.endm

	before_stub nopal_stub_jump, nopal_before_jump
	before_stub nopal_stub_libraries, nopal_before_libraries
	before_stub nopal_stub_exec, nopal_before_exec
	before_stub nopal_stub_exec_at, nopal_before_exec_at
	before_stub nopal_stub_exec_descriptor, nopal_before_exec_descriptor
	before_stub nopal_stub_prctl, nopal_before_prctl
	before_stub nopal_stub_seccomp, nopal_before_seccomp
	before_stub nopal_stub_signal_action, nopal_before_signal_action
	before_stub nopal_stub_protect, nopal_before_protect
	before_stub nopal_stub_move, nopal_before_move
	before_stub nopal_stub_system_call, nopal_before_system_call

/* The handler replaces the function, and gets the function (body) as its third argument. */
.macro instead_stub name, handler
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
	.cfi_def_cfa_offset 16
	pop_register %rdx
	jmp \handler
	.cfi_endproc
	.size \name, . - \name
.endm

	instead_stub nopal_stub_find_object, nopal_find_object
	instead_stub nopal_stub_iterate_objects, nopal_iterate_objects
	instead_stub nopal_stub_lock_all, nopal_lock_all

/* An exception that passes through a wrapped frame goes on here. The unwinder comes here, by nopal_personality, with
 *   %rax = exception    %rdx = where the thunk was to go on, and the unwinder's number << 56    %rsp = slot + 8
 * The slot itself no longer holds anything: the unwinder has used it to come here.
 * The exit is recorded, the return address put back, and unwinding resumed as if the thunk's caller had asked for it.
 * That makes the thunk's frame eight bytes long for the unwinder, which tells frames apart by their stack pointers. */
	.globl nopal_landing
	.type nopal_landing, @function
nopal_landing:
	.cfi_startproc
	.cfi_def_cfa_offset 0
	cfi_return_address_in_mirror
	lea -8(%rsp), %rsp
	.cfi_def_cfa_offset 8
	mov %rdx, %rcx
	shl $(64 - NOPAL_UNWINDER_SHIFT), %rcx
	shr $(64 - NOPAL_UNWINDER_SHIFT), %rcx
	push_register %rcx
	mov NOPAL_EXIT_WORD(%rcx), %ecx
	and $-16, %ecx
	or $NOPAL_KIND_UNWIND, %ecx
	call nopal_exit
	pop_register %rcx
	cfi_return_address_in_slot
	mov %rax, %rdi
	shr $NOPAL_UNWINDER_SHIFT, %rdx
	imul $NOPAL_UNWINDER_BYTES, %rdx, %rdx
	add nopal_process(%rip), %rdx
	jmp *(NOPAL_PROCESS_UNWINDERS + NOPAL_UNWINDER_RESUME)(%rdx)
	.cfi_endproc
	.size nopal_landing, . - nopal_landing

	.section .note.GNU-stack, "", @progbits
