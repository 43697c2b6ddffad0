/* A library that calls itself a C library. One of the functions that a C library has begins on one page and goes on on
 * the next: a jump there would lie on both. */
__asm__(".text\n"
	".balign 4096\n"
	".skip 4094, 0x90\n"
	".globl pkey_mprotect\n"
	".type pkey_mprotect, @function\n"
	"pkey_mprotect:\n"
	"	movl $-1, %eax\n"
	"	ret\n"
	".size pkey_mprotect, . - pkey_mprotect\n");
