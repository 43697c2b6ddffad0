/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The thunk, which the tool copies for every function, and the stub of a hook. They are entered on the traced program's
 * stack, with the program's registers, at any time and in any signal handler; they change no register but the flags
 * (dead at a call and at a return) and touch no vector state. Their calls lead to record.S.
 *
 * Fields that the tool fills in are listed in the section .nopal_patches as pairs {address of the field, kind}: the
 * value is added to what the field holds.
 */
#include "macros.h"
#include "process.h"

/* ---- The thunk ----------------------------------------------------------------------------------------------
 *
 * f, before:  the first instructions of f          f, after:  e9 rel32   jmp thunk
 *
 * The first two bytes are the switch: 66 90 (a NOP) when the site is on, eb rel8 to nopal_thunk_count when its calls are
 * counted, eb rel8 to body when it is off. `body` (the displaced instructions, then a jump to f + window) is appended by
 * the tool.
 *
 * To count, step by step: the page of the stack that we are on, its place in the table of the site's group, and a step
 * of the counter that is noted there, by one instruction: so a signal handler may count between any two. The thread
 * pointer, which tells threads apart elsewhere, takes more time to read than all of this. The step also goes on to the
 * next sampled call. A carry shows that this is one: it goes through the code that records.
 */
	.section .nopal_thunk, "ax", @progbits
	.globl nopal_thunk, nopal_thunk_entry_word, nopal_thunk_entry_call, nopal_thunk_body_call
	.globl nopal_thunk_return, nopal_thunk_exit_word, nopal_thunk_exit_call, nopal_thunk_end
	.globl nopal_thunk_count, nopal_thunk_count_table, nopal_thunk_count_counter
	.globl nopal_thunk_count_site, nopal_thunk_count_call
	.balign 16
nopal_thunk:
	.cfi_startproc
	.byte 0x66, 0x90
.Lrecord:
	push_register %rcx
	movl $0, %ecx                   /* kind | site << 4 */
nopal_thunk_entry_word:
	.byte 0xe8, 0, 0, 0, 0          /* call nopal_entry: carry set if the call must not be wrapped */
nopal_thunk_entry_call:
	pop_register %rcx
	jc nopal_thunk_end
	cfi_return_address_in_mirror
	add $8, %rsp                    /* the return address is in the mirror now … */
	.cfi_def_cfa_offset 0
	.byte 0xe8, 0, 0, 0, 0          /* … and call body puts ours into the very same slot */
nopal_thunk_body_call:
nopal_thunk_return:
	lea -8(%rsp), %rsp
	.cfi_def_cfa_offset 8
	push_register %rcx
	movl $0, %ecx
nopal_thunk_exit_word:
	.byte 0xe8, 0, 0, 0, 0          /* call nopal_exit: puts the return address back into the slot */
nopal_thunk_exit_call:
	pop_register %rcx
	ret
	cfi_return_address_in_slot
	.cfi_remember_state
	.cfi_def_cfa_offset 32
.Lcount_slowly:
	movl $0, %ecx                   /* site */
nopal_thunk_count_site:
	.byte 0xe8, 0, 0, 0, 0          /* call nopal_count_slowly: carry set if the call is sampled */
nopal_thunk_count_call:
	jnc .Lcounted
	pop_register %rdx
	pop_register %rcx
	pop_register %rax
	jmp .Lrecord
	.cfi_restore_state
nopal_thunk_count:
	push_register %rax
	push_register %rcx
	push_register %rdx
	mov %rsp, %rcx
	shr $NOPAL_COUNTED_PAGE_SHIFT, %rcx
	imul $NOPAL_THREAD_HASH, %ecx, %eax
	shr $NOPAL_COUNTED_SHIFT, %eax
	movabs $0, %rdx                 /* struct nopal_counted of the site's group */
nopal_thunk_count_table:
	cmp %rcx, (%rdx, %rax, 8)
	jne .Lcount_slowly
	mov NOPAL_COUNTED_COUNTERS(%rdx, %rax, 8), %rax
	test %rax, %rax                 /* a handler has forked meanwhile, and we are in the child: the table is empty */
	jz .Lcount_slowly
	mov $(1 + (1 << (64 - NOPAL_COUNT_BITS))), %edx
	ror $(64 - NOPAL_COUNT_BITS), %rdx /* NOPAL_COUNT_STEP */
	.byte 0x48, 0x01, 0x90, 0, 0, 0, 0 /* add %rdx, counter(%rax) */
nopal_thunk_count_counter:
	jc .Lcount_slowly
.Lcounted:
	pop_register %rdx
	pop_register %rcx
	pop_register %rax
nopal_thunk_end:
	.cfi_endproc

/* ---- Hooks --------------------------------------------------------------------------------------------------
 *
 * A stub for a function of libc that nopal hooks. `body` follows, as in a thunk. The stub is entered with (%rsp) =
 * body, 8(%rsp) = the caller's return address, and all registers as the caller left them.
 */
	.globl nopal_hook, nopal_hook_body, nopal_hook_stub, nopal_hook_end
	.balign 16
nopal_hook:
	.cfi_startproc
	push_register %rax
	.byte 0x48, 0x8d, 0x05, 0, 0, 0, 0      /* lea body(%rip), %rax */
nopal_hook_body:
	xchg %rax, (%rsp)
	.byte 0xe9, 0, 0, 0, 0                  /* jmp stub */
nopal_hook_stub:
	.cfi_def_cfa_offset 8
nopal_hook_end:
	.cfi_endproc

	.section .note.GNU-stack, "", @progbits
