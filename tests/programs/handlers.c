/* An interpreter in assembly. Its handlers are functions that jump to each other through a table of 32-bit distances,
 * and share a frame: the word on top of the stack is a variable. */
#include "hard.h"

#ifdef HOLD
enum { ROUNDS = 100000 };
#else
enum { ROUNDS = 200 };
#endif

KEPT __attribute__((used)) long triple(long value)
{
	EFFECT();
	return 3 * value + 1;
}

long interpret(const unsigned char *code, long rounds);

#define HANDLER(name, text) ".type " name ", @function\n" name ": " text "\n.size " name ", . - " name "\n.p2align 4\n"
#define NEXT "movzbl (%rbx), %ecx; inc %rbx; lea handlers(%rip), %rdx; movslq (%rdx, %rcx, 4), %rcx; add %rdx, %rcx; jmp *%rcx"

__asm__(".text\n"
	".globl interpret\n"
	HANDLER("interpret", "push %rbp; mov %rsp, %rbp; push %rbx; push %r12; sub $64, %rsp; mov %rdi, %rbx; mov %rsi, %r12\n"
			     "xor %eax, %eax; movq $0, -80(%rbp); movq $1, -72(%rbp); jmp next")
	HANDLER("next", NEXT)
	HANDLER("add", "add -72(%rbp), %rax; addq $3, -80(%rbp);" NEXT)
	HANDLER("spill", "mov %rax, -80(%rbp); mov -80(%rbp), %rdx; add %rdx, -72(%rbp); andq $0xffff, -72(%rbp); jmp next")
	HANDLER("reload", "add -80(%rbp), %rax;" NEXT)
	HANDLER("call", "mov %rax, %rdi; call triple;" NEXT)
	HANDLER("loop", "dec %r12; jz 1f; sub $7, %rbx; jmp next; 1: add $64, %rsp; pop %r12; pop %rbx; pop %rbp; ret")
	".section .rodata\n.balign 4\n"
	"handlers: .long add - handlers, spill - handlers, reload - handlers, call - handlers, loop - handlers\n"
	".text\n");

int main(void)
{
	static const unsigned char code[] = { 0, 1, 2, 0, 3, 1, 4 };
	unsigned long sum = 0;
	for (int round = 0; round < ROUNDS; round++)
		sum += (unsigned long)interpret(code, 100);
	printf("%lx\ncalls: %d interpret\n", sum, ROUNDS);
	return 0;
}
