// Spins inside a restartable sequence, which the kernel aborts whenever the thread has been off its processor. Prints the
// bounds of the sequence and where aborts go. Ends when an abort finds standard input closed.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/rseq.h>
#include <unistd.h>

struct __attribute__((aligned(32))) sequence {
	uint32_t version, flags;
	uint64_t start, length, abort;
};

int main(void) {
	struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
	static struct sequence sequence;
	void *start, *end, *abort;
	__asm__ volatile("lea 1f(%%rip), %0; lea 2f(%%rip), %1; lea 3f(%%rip), %2" : "=r"(start), "=r"(end), "=r"(abort));
	sequence = (struct sequence){0, 0, (uint64_t)start, (char *)end - (char *)start, (uint64_t)abort};
	printf("%p %p %p\n", start, end, abort);
	fflush(stdout);
	__asm__ volatile(
	    "0: movq %[sequence], %[area]\n"
	    "1: pause\n"
	    "   jmp 1b\n"
	    "2: ud2\n"
	    ".long 0x53053053\n"
	    "3: mov $0, %%eax\n" // an abort: read(0, stack, 1), and once more from the start unless that is the end
	    "   xor %%edi, %%edi\n"
	    "   lea -256(%%rsp), %%rsi\n"
	    "   mov $1, %%edx\n"
	    "   syscall\n"
	    "   test %%rax, %%rax\n"
	    "   jnz 0b\n"
	    : [area] "+m"(*(uint64_t *)((char *)area + offsetof(struct rseq, rseq_cs)))
	    : [sequence] "r"(&sequence)
	    : "rax", "rcx", "rdx", "rsi", "rdi", "r11", "memory");
	return 0;
}
