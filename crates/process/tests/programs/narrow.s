# A 32-bit program that reads a byte from standard input.
	.globl _start
_start:
	mov $3, %eax
	xor %ebx, %ebx
	mov %esp, %ecx
	mov $1, %edx
	int $0x80
	mov $1, %eax
	int $0x80
