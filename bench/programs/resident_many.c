/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The work of a resident program: it calls each of 50,000 functions once, f_0 to f_49999.
 */
#include <stddef.h>

typedef int function(int);
extern function *const functions[];
#define FUNCTIONS 50000

/* The functions are in assembly, since a compiler would take a minute. */
__asm__(".altmacro\n"
	".macro define_function number\n"
	".p2align 4\n"
	".globl f_\\number\n"
	".type f_\\number, @function\n"
	"f_\\number:\n"
	".cfi_startproc\n"
	"	push %rbx\n"
	"	.cfi_def_cfa_offset 16\n"
	"	.cfi_offset %rbx, -16\n"
	"	lea \\number(%rdi, %rdi, 2), %ebx\n"
	"	mov %ebx, %eax\n"
	"	pop %rbx\n"
	"	.cfi_def_cfa_offset 8\n"
	"	ret\n"
	".cfi_endproc\n"
	".size f_\\number, . - f_\\number\n"
	".endm\n"
	".macro name_function number\n"
	".quad f_\\number\n"
	".endm\n"
	".text\n"
	".set number, 0\n"
	".rept 50000\n"
	"define_function %number\n"
	".set number, number + 1\n"
	".endr\n"
	".section .data.rel.ro, \"aw\"\n"
	".globl functions\n"
	"functions:\n"
	".set number, 0\n"
	".rept 50000\n"
	"name_function %number\n"
	".set number, number + 1\n"
	".endr\n"
	".text\n"
	".noaltmacro\n");

void *start_work(void)
{
	return NULL;
}

void work(void *unused)
{
	volatile int sum = 0;
	for (size_t i = 0; i < FUNCTIONS; i++)
		sum += functions[i](sum);
	(void)unused;
}
