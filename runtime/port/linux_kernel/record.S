/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * Recording in a kernel: entries at the fentry site, exits at the returns and at the jumps by which a function leaves.
 * Return addresses stay as they are. Entered in any context, an NMI's too; changes no register that is alive there.
 *
 * The steps are those of arch/x86_64/record.S, on the context of the processor. A task that is moved to another processor
 * between two steps fails at step 5: no two processors ever have the same position.
 *   1. load the position
 *   2. the stack is known (its range has no bytes after a switch of tasks)
 *   3. room for the record?
 *   4. clock; its upper half is the chunk's
 *   5. reserve: compare-and-swap the position, which only this processor's own interrupts change
 *   6. store the lower word, then the word with the kind
 *
 * A pair that is recorded takes 56 instructions in Debian's 6.1 and 6.12, those of the site and of the slot included
 * (QEMU with -icount).
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/asm.h>
#include <asm/percpu.h>
#include <asm/nospec-branch.h>
#include "process.h"

#define CHUNK_MASK (NOPAL_CHUNK_BYTES - 1)
#define CONTEXT(field) PER_CPU_VAR(nopal_cpu + NOPAL_CONTEXT_##field)

/* Steps 1 to 5 for a record of \bytes, with the slot at \slot(\base): its address in %rax, the clock's lower half in
 * %r10d. Uses %rax, %rdx and %r10, and %r\offset, which keeps the slot's distance from a page unless it is %rdx. */
.macro reserve bytes, base, slot, offset, slow
.Lagain\@:
	mov CONTEXT(POSITION), %r10
	lea \slot(\base), %r\offset
	sub CONTEXT(STACK_LOW), %r\offset
	cmp CONTEXT(STACK_SPAN), %r\offset
	jae \slow
.if \bytes == 8
	test $CHUNK_MASK, %r10d
	jz \slow
.else
	lea -1(%r10), %eax
	and $CHUNK_MASK, %eax
	cmp $(NOPAL_CHUNK_BYTES - \bytes - 1), %eax
	ja \slow
.endif
	rdtsc
	cmp CONTEXT(CLOCK_HIGH), %edx
	jne \slow
	xchg %rax, %r10
	lea \bytes(%rax), %rdx
	cmpxchg %rdx, CONTEXT(POSITION)
	jne .Lagain\@
.endm

/* Step 6. %r11d = kind | site << 4; %e\offset as reserve leaves it. Of records of several words, \words are stored in
 * between, while the record is PENDING. */
.macro store base, slot, offset, pending=0, words
	mov %r10d, (%rax)
.ifc \offset, dx
	lea \slot(\base), %edx
.endif
	shl $20, %e\offset
	and $0xff000000, %e\offset
	or %e\offset, %r11d
.ifnb \words
	mov %r11d, %edx
	and $-16, %edx
	or $\pending, %edx
	mov %edx, 4(%rax)
	\words
.endif
	mov %r11d, 4(%rax)
.endm

/* The slow path provides what the fast path lacks: to \again, or to \done if the event is recorded, lost, or not
 * wanted, as of most tasks while one is watched. Interrupts are off meanwhile: it belongs to one processor. */
.macro prepare bytes, base, slot, again, done
	cmpb $0, PER_CPU_VAR(nopal_wanted)
	je \done
	push %rcx
	push %rsi
	push %rdi
	push %r8
	push %r9
	push %r10
	push %r11
	pushf
	cli
.ifc \base, %rsp
	lea \slot + 64(%rsp), %rdi
.else
	lea \slot(\base), %rdi
.endif
	mov %r11d, %esi
	mov $\bytes, %edx
	call nopal_prepare_here
	popf
	pop %r11
	pop %r10
	pop %r9
	pop %r8
	pop %rdi
	pop %rsi
	pop %rcx
	test %eax, %eax
	jz \again
	jmp \done
.endm

/* The word of a function, in %r11d; 0 if it is not wanted any more. Of the address that its fentry site returns to, %r11
 * has bits 0 to 15 and %rax bits 16 to 31. Uses %rax. */
.macro look_up done
	mov nopal_leaves - 8 * 0x8000(, %rax, 8), %rax
	shr $4, %r11d
	mov (%rax, %r11, 4), %r11d
	test %r11d, %r11d
	jz \done
.endm

.macro store_arguments
	mov %rdi, 8(%rax)
	mov %rsi, 16(%rax)
	mov (%rsp), %rdx
	mov %rdx, 24(%rax)
	mov %rcx, 32(%rax)
	mov %r8, 40(%rax)
	mov %r9, 48(%rax)
.endm

.macro store_result
	mov %r8, 8(%rax)
.endm

/* Called and jumped to directly, which takes no endbr64. */
.macro begin name
	.balign 64
SYM_START(\name, SYM_L_GLOBAL, SYM_A_NONE)
	ANNOTATE_NOENDBR
.endm

	.text

/* Called by a fentry site: (%rsp) behind it, 8(%rsp) the slot. %rax, %r10 and %r11 are free. */
.macro entry name, bytes, pending=0, words
	begin \name
	push %rdx
	movzwl 8(%rsp), %r11d
	movzwl 10(%rsp), %eax
	look_up .Ldone\@
.Lstart\@:
	reserve \bytes, %rsp, 16, dx, .Lslow\@
	store %rsp, 16, dx, \pending, \words
.Ldone\@:
	pop %rdx
	RET
.Lslow\@:
	prepare \bytes, %rsp, 16, .Lstart\@, .Ldone\@
SYM_FUNC_END(\name)
.endm

	entry nopal_entry, 8
	entry nopal_entry_arguments, 56, NOPAL_KIND_PENDING_ARGS, store_arguments

/* Stores the arguments from the registers that the function's entry has saved, at %r9. */
.macro store_saved_arguments
	mov 112(%r9), %rdx
	mov %rdx, 8(%rax)
	mov 104(%r9), %rdx
	mov %rdx, 16(%rax)
	mov 96(%r9), %rdx
	mov %rdx, 24(%rax)
	mov 88(%r9), %rdx
	mov %rdx, 32(%rax)
	mov 72(%r9), %rdx
	mov %rdx, 40(%rax)
	mov 64(%r9), %rdx
	mov %rdx, 48(%rax)
.endm

/* An ftrace_ops' function, which may be called by its address: %rcx = struct pt_regs, the registers of the function.
 * Their ip is what the call returns to: behind the fentry site, unless another tracer called before this one has replaced
 * the function. */
.macro entry_of_ops name, bytes, pending=0, words
	.balign 64
SYM_START(\name, SYM_L_GLOBAL, SYM_A_NONE)
	ENDBR
	mov 152(%rcx), %r8              /* sp: the slot */
.ifnb \words
	mov %rcx, %r9
.endif
	mov 128(%rcx), %r11d            /* ip */
	mov %r11d, %eax
	shr $16, %eax
	movzwl %r11w, %r11d
	look_up .Ldone\@
.Lstart\@:
	reserve \bytes, %r8, 0, cx, .Lslow\@
	store %r8, 0, cx, \pending, \words
.Ldone\@:
	RET
.Lslow\@:
	prepare \bytes, %r8, 0, .Lstart\@, .Ldone\@
SYM_FUNC_END(\name)
.endm

	entry_of_ops nopal_entry_of_ops, 8
	entry_of_ops nopal_entry_of_ops_arguments, 56, NOPAL_KIND_PENDING_ARGS, store_saved_arguments

/* Jumped to in place of a return: (%rsp) is the slot, the result is in %rax and %rdx; %rcx, %rsi, %rdi, %r8 to %r11 are
 * free. The word is in %r11d. */
.macro exit name, bytes, pending=0, words
	begin \name
	mov %rax, %r8
	mov %rdx, %r9
.Lstart\@:
	reserve \bytes, %rsp, 0, cx, .Lslow\@
	store %rsp, 0, cx, \pending, \words
.Ldone\@:
	mov %r8, %rax
	mov %r9, %rdx
	RET
.Lslow\@:
	prepare \bytes, %rsp, 0, .Lstart\@, .Ldone\@
SYM_FUNC_END(\name)
.endm

	exit nopal_return, 8
	exit nopal_return_result, 16, NOPAL_KIND_PENDING_RESULT, store_result

/* Called before a jump out of a function: 8(%rsp) is the slot. The jump may lead to a retpoline: all registers are kept
 * but %r10 and %r11, and no plan holds a jump that needs those. */
	begin nopal_tail
	push %rax
	push %rdx
.Lstart_tail:
	reserve 8, %rsp, 24, dx, .Lslow_tail
	store %rsp, 24, dx
.Ldone_tail:
	pop %rdx
	pop %rax
	RET
.Lslow_tail:
	prepare 8, %rsp, 24, .Lstart_tail, .Ldone_tail
SYM_FUNC_END(nopal_tail)
