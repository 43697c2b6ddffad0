/* Functions of two to four bytes, and one with a jump behind its first instruction, packed without padding within the
 * reach of a short jump. Four others beside them have room for two jumps. */
#ifndef PACKED_H
#define PACKED_H

int host_a(int n);
int host_b(int n);
int host_c(int n);
int host_d(int n);
int two_bytes(int n);
int three_bytes(int n);
int four_bytes(int n);
int looping(int n);

#define PACKED(name, code)                                                                                            \
	".globl " name "\n.type " name ", @function\n" name ": .cfi_startproc\n" code                                \
	"\n.cfi_endproc\n.size " name ", .-" name "\n"

/* More than a short jump reaches. A jump leads behind the first five bytes, so there is no room for a second one. */
#define FILLING                                                                                                       \
	"	mov $1, %eax\n1: .rept 40\n	lea 1(%rax,%rdi), %eax\n.endr\n	sub $1, %edi\n	jnz 1b\n	ret"

__asm__(".text\n"
	".p2align 4\n"
	PACKED("filling_before", FILLING)
	PACKED("host_a", "	mov $3, %eax\n	imul %edi, %eax\n	add $1, %eax\n	ret")
	PACKED("host_b", "	mov $5, %eax\n	imul %edi, %eax\n	add $2, %eax\n	ret")
	PACKED("host_c", "	mov $7, %eax\n	imul %edi, %eax\n	add $3, %eax\n	ret")
	PACKED("host_d", "	mov $9, %eax\n	imul %edi, %eax\n	add $4, %eax\n	ret")
	PACKED("two_bytes", "	jmp host_a")
	PACKED("three_bytes", "	xor %eax, %eax\n	ret")
	PACKED("four_bytes", "	lea 1(%rdi), %eax\n	ret")
	PACKED("looping", "	xor %eax, %eax\n1:	inc %eax\n	dec %edi\n	jnz 1b\n	ret")
	PACKED("filling_behind", FILLING)
	".p2align 4\n");

/* Whether all of them compute what they should. */
static int packed_are_right(int n)
{
	return host_a(n) == 3 * n + 1 && host_b(n) == 5 * n + 2 && host_c(n) == 7 * n + 3 &&
	       host_d(n) == 9 * n + 4 && two_bytes(n) == 3 * n + 1 && three_bytes(n) == 0 &&
	       four_bytes(n) == n + 1 && looping(n) == n;
}

#endif
