/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The path from QEMU's entry of a PVH kernel (32 bits, no paging, %ebx = its start information) to C in 64 bits, for
 * both processors; and from interrupts to C.
 */
#include "kernel.h"

#define CODE_32 0x08
#define CODE_64 0x10
#define DATA 0x18
#define PAGE_FLAGS 0x83         /* present, writable, 2 MiB */
#define TABLE_FLAGS 0x03
#define ERROR_CODES 0x60227d00  /* the exceptions that push one */

	.section .note.Xen, "a", @note
	.balign 4
	.long 4, 8, 18          /* XEN_ELFNOTE_PHYS32_ENTRY */
	.asciz "Xen"
	.quad start

	.bss
	.balign 4096
root:	.skip 4096
upper:	.skip 4096
pages:	.skip 4 * 4096          /* 4 GiB, each address as it is */

	.section .rodata
	.balign 8
descriptors:
	.quad 0, 0x00cf9a000000ffff, 0x00af9a000000ffff, 0x00cf92000000ffff
descriptors_end:

	.text
	.code32
	.globl start
start:
	cli
	lgdt descriptors_pointer
	mov $pages, %edi
	mov $PAGE_FLAGS, %eax
1:	mov %eax, (%edi)
	add $8, %edi
	add $0x200000, %eax
	jnc 1b
	mov $pages + TABLE_FLAGS, %eax
	mov $upper, %edi
	mov $4, %ecx
2:	mov %eax, (%edi)
	add $4096, %eax
	add $8, %edi
	loop 2b
	movl $upper + TABLE_FLAGS, root
	mov %ebx, %esi
	xor %edi, %edi
	jmp enter

	.globl start_other
start_other:
	mov $1, %edi
enter:
	mov $DATA, %eax
	mov %eax, %ds
	mov %eax, %es
	mov %eax, %ss
	mov $0x6a0, %eax        /* physical addresses of 36 bits, SSE's state and exceptions */
	mov %eax, %cr4
	mov $root, %eax
	mov %eax, %cr3
	mov $0xc0000080, %ecx   /* EFER */
	rdmsr
	or $0x100, %eax         /* long mode */
	wrmsr
	mov $0x80000011, %eax   /* paging, protection */
	mov %eax, %cr0
	ljmp $CODE_64, $enter_64

	.code64
enter_64:
	lea 1(%rdi), %rax
	imul $STACK_BYTES, %rax, %rax
	lea stacks(%rax), %rsp
	xor %ebp, %ebp
	call kernel_begin       /* (processor, what QEMU says) */

/* The second processor begins here, in a copy at TRAMPOLINE. */
	.section .rodata
	.globl trampoline, trampoline_end
	.code16
trampoline:
	cli
	xor %ax, %ax
	mov %ax, %ds
	lgdtl TRAMPOLINE + descriptors_pointer - trampoline
	mov %cr0, %eax
	or $1, %al
	mov %eax, %cr0
	ljmpl $CODE_32, $start_other
descriptors_pointer:
	.word descriptors_end - descriptors - 1
	.long descriptors
trampoline_end:

/* ---- interrupts: a stub of 16 bytes for each vector ---- */

	.text
	.code64
	.globl stubs
	.balign 16
stubs:
	.set vector, 0
	.rept VECTORS
	.balign 16
	.if vector >= 32 || !((ERROR_CODES >> vector) & 1)
	push $0
	.endif
	push $vector
	jmp interrupt
	.set vector, vector + 1
	.endr

interrupt:
	push %rax
	push %rcx
	push %rdx
	push %rbx
	push %rbp
	push %rsi
	push %rdi
	push %r8
	push %r9
	push %r10
	push %r11
	push %r12
	push %r13
	push %r14
	push %r15
	cld
	mov %rsp, %rdi
	call kernel_interrupt
	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %r11
	pop %r10
	pop %r9
	pop %r8
	pop %rdi
	pop %rsi
	pop %rbp
	pop %rbx
	pop %rdx
	pop %rcx
	pop %rax
	add $16, %rsp
	iretq

	.section .note.GNU-stack, "", @progbits
