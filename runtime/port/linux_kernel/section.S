/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * The thunks that the sites found by sections.c call. Each does what its instruction did, and marks the begin or the
 * end of a section in the processor's struct nopal_section. A call changes no register, and of the flags only those
 * that the instruction changes.
 *
 * A begin is taken only if interrupts, or preemption, were on before. So the next begin drops a section whose end was
 * not seen. An end is taken only if they are on afterwards. Preemption is off already when its begin is marked, and
 * still off when its end is: no other section of the processor comes in between.
 *
 * A pair of cli and sti takes 39 or 40 instructions more than without.
 *
 * The thunks are NOPAL_SECTION_THUNK_BYTES long each: for each mode, for each of its kinds, for each place: the return
 * address of the site, or that of its function, with 0 to 3 words pushed in between.
 */
#include <linux/linkage.h>
#include <asm/asm.h>
#include <asm/percpu.h>
#include <asm/nospec-branch.h>
#include "section.h"

#define SECTION(field) PER_CPU_VAR(nopal_section + NOPAL_SECTION_##field)
#define COUNT PER_CPU_VAR(NOPAL_PREEMPT_COUNT)
#define IRQS_ON 0x200
#define PREEMPT_MASK 0x7fffffff

.macro begin at
	rdtsc
	mov %eax, SECTION(SINCE)
	mov %edx, SECTION(SINCE + 4)
	mov \at(%rsp), %rax
	mov %rax, SECTION(FROM)
.endm

/* The case counts in the histogram: see nopal_histogram_bucket. Falls through, or jumps to .Lend\id. */
.macro end id
	mov SECTION(SINCE), %rcx
	jrcxz .Lend\id
	rdtsc
	shl $32, %rdx
	or %rdx, %rax
	sub %rcx, %rax
	cmp SECTION(LIMIT), %rax
	ja .Lkeep\id
.Lcount\id:
	mov %rax, %rcx
	or $32, %rcx
	bsr %rcx, %rcx
	sub $5, %ecx
	shr %cl, %rax
	shl $5, %ecx
	add %rcx, %rax
	mov SECTION(HISTOGRAM), %rcx
	incq (%rcx, %rax, 8)
	movq $0, SECTION(SINCE)
.endm

.macro keep id, at
.Lkeep\id:
	push %rax
	push %rsi
	push %rdi
	push %r8
	push %r9
	push %r10
	push %r11
	mov %rax, %rdi
	mov (56 + \at)(%rsp), %rsi
	call nopal_section_keep
	pop %r11
	pop %r10
	pop %r9
	pop %r8
	pop %rdi
	pop %rsi
	pop %rax
	jmp .Lcount\id
.endm

/* For the joint tracer: jumps to \to while the other of the two is off. */
.macro if_preemption_is_off to
	testl $PREEMPT_MASK, COUNT
	jnz \to
.endm
.macro if_irqs_are_off to
	pushf
	pop %rax
	test $IRQS_ON, %eax
	jz \to
.endm

.macro cli_thunk joint, at
SYM_FUNC_START_LOCAL_NOALIGN(nopal_cli_\joint\()_\at)
	push %rax
	push %rdx
	pushf
	cli
	pop %rax
	test $IRQS_ON, %eax
	jz .Lend\@
.if \joint
	if_preemption_is_off .Lend\@
.endif
	begin (16 + \at)
.Lend\@:
	pop %rdx
	pop %rax
	RET
SYM_FUNC_END(nopal_cli_\joint\()_\at)
.endm

.macro sti_thunk joint, at
SYM_FUNC_START_LOCAL_NOALIGN(nopal_sti_\joint\()_\at)
	push %rax
	push %rdx
	push %rcx
.if \joint
	if_preemption_is_off .Lend\@
.endif
	end \@
.Lend\@:
	pop %rcx
	pop %rdx
	pop %rax
	sti
	RET
	keep \@, (24 + \at)
SYM_FUNC_END(nopal_sti_\joint\()_\at)
.endm

/* \amount is added to the count. */
.macro more_thunk joint, amount, at
SYM_FUNC_START_LOCAL_NOALIGN(nopal_more_\joint\()_\amount\()_\at)
	NOPAL_PREEMPT_COUNT_ADD $\amount, COUNT
	push %rax
	push %rdx
	mov COUNT, %eax
	and $PREEMPT_MASK, %eax
	cmp $\amount, %eax
	jne .Lend\@
.if \joint
	if_irqs_are_off .Lend\@
.endif
	begin (16 + \at)
.Lend\@:
	pop %rdx
	pop %rax
	RET
SYM_FUNC_END(nopal_more_\joint\()_\amount\()_\at)
.endm

/* \amount is taken away; the flags tell the site whether there is to be a switch of tasks. */
.macro less_thunk joint, amount, at
SYM_FUNC_START_LOCAL_NOALIGN(nopal_less_\joint\()_\amount\()_\at)
	push %rax
	push %rdx
	push %rcx
	mov COUNT, %eax
	and $PREEMPT_MASK, %eax
	cmp $\amount, %eax
	jne .Lend\@
.if \joint
	if_irqs_are_off .Lend\@
.endif
	end \@
.Lend\@:
	pop %rcx
	pop %rdx
	pop %rax
.if \amount == 1
	NOPAL_PREEMPT_COUNT_SUBTRACT_ONE COUNT
.else
	NOPAL_PREEMPT_COUNT_ADD $-\amount, COUNT
.endif
	RET
	keep \@, (24 + \at)
SYM_FUNC_END(nopal_less_\joint\()_\amount\()_\at)
.endm

.macro irqs joint
	.irp at, 0, 8, 16, 24, 32
	.balign NOPAL_SECTION_THUNK_BYTES, 0xcc
	cli_thunk \joint, \at
	.endr
	.irp at, 0, 8, 16, 24, 32
	.balign NOPAL_SECTION_THUNK_BYTES, 0xcc
	sti_thunk \joint, \at
	.endr
.endm

.macro preemption_of joint, amount
	.irp at, 0, 8, 16, 24, 32
	.balign NOPAL_SECTION_THUNK_BYTES, 0xcc
	more_thunk \joint, \amount, \at
	.endr
	.irp at, 0, 8, 16, 24, 32
	.balign NOPAL_SECTION_THUNK_BYTES, 0xcc
	less_thunk \joint, \amount, \at
	.endr
.endm

/* In the order of NOPAL_SECTION_AMOUNTS. */
.macro preemption joint
	.irp amount, NOPAL_SECTION_AMOUNTS
	preemption_of \joint, \amount
	.endr
.endm

	.text
	.balign NOPAL_SECTION_THUNK_BYTES, 0xcc
	.globl nopal_section_thunks
nopal_section_thunks:
	irqs 0
	preemption 0
	irqs 1
	preemption 1

/* At the end of an interrupt: interrupts stay off until its last instruction, which has no site. Jumped to in place of a
 * return; or called before a jump out of the function (sections.c). */
.macro irq_out name, joint, at
SYM_FUNC_START(\name)
	push %rax
	push %rdx
	push %rcx
.if \joint
	if_preemption_is_off .Lend\@
.endif
	end \@
.Lend\@:
	pop %rcx
	pop %rdx
	pop %rax
	RET
	keep \@, (24 + \at)
SYM_FUNC_END(\name)
.endm
	irq_out nopal_irq_out, 0, 0
	irq_out nopal_irq_out_joint, 1, 0
	irq_out nopal_irq_out_tail, 0, 8
	irq_out nopal_irq_out_tail_joint, 1, 8
