/* A hand-written switch of stacks, which no library knows. */
#pragma once

/* Saves the caller's position in *from and goes on at `to`, saved before. */
void switch_stacks(void **from, void *to);
__asm__(".text\n"
        ".globl switch_stacks\n"
        ".type switch_stacks, @function\n"
        "switch_stacks:\n"
        "	pushq %rbp\n	pushq %rbx\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"
        "	movq %rsp, (%rdi)\n"
        "	movq %rsi, %rsp\n"
        "	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbx\n	popq %rbp\n"
        "	ret\n"
        ".size switch_stacks, . - switch_stacks\n");
