/* Functions that pop their arguments, as Swift's do, and others that jump to them: they return with another stack
 * pointer than they were called with. */
#include "hard.h"

#define ROUNDS 500

// calls: 1000 pops
// calls: 500 jumps
// calls: 500 jumps_by_pointer
// calls: 500 popped

#define FUNCTION(name, text)                                                                                         \
	__asm__(".text\n.globl " name "\n.type " name ", @function\n.p2align 4\n" name ":\n" text "\n.size " name    \
	        ", . - " name "\n")

FUNCTION("pops", "mov 8(%rsp), %rax\n add %rdi, %rax\n ret $8");
FUNCTION("jumps", "inc %rdi\n nop\n nop\n jmp pops");
FUNCTION("jumps_by_pointer", "lea 2(%rdi), %rdi\n nop\n jmp *%rsi");
long popped(long);
FUNCTION("popped", "push %rbx\n push %rdi\n call jumps\n mov %rax, %rbx\n push %rdi\n lea pops(%rip), %rsi\n"
                   "call jumps_by_pointer\n add %rbx, %rax\n pop %rbx\n ret");

int main(void)
{
	long sum = 0;
	for (long i = 0; i < ROUNDS; i++)
		sum += popped(i);
	printf("popped %ld\n", sum);
	return 0;
}
