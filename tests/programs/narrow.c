/* Runs 32-bit code, as Wine does for old programs, and calls ordinary functions in between. */
#define _GNU_SOURCE
#include "hard.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS = 600, USER_CODE_32 = 0x23, PART = 64 << 10, POINTER = 200 };

/* mov $0x100000, %ecx; 1: dec %ecx; jnz 1b; add $1, %eax; lret */
static const unsigned char code[] = { 0xb9, 0, 0, 0x10, 0, 0x49, 0x75, 0xfd, 0x83, 0xc0, 1, 0xcb };

static unsigned char *low;

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

KEPT static long visit(long n)
{
	struct {
		unsigned at;
		unsigned short segment;
	} __attribute__((packed)) target = { (unsigned)(unsigned long)low, USER_CODE_32 };
	memcpy(low + POINTER, &target, sizeof target);
	__asm__ volatile("mov %%rsp, %%r12\n\t"
			 "mov %1, %%rsp\n\t"
			 "lcall *(%2)\n\t"
			 "mov %%r12, %%rsp"
			 : "+a"(n)
			 : "r"(low + 2 * PART - 256), "r"(low + POINTER)
			 : "rcx", "r12", "memory", "cc");
	return n;
}

int main(void)
{
	const char *hold = getenv("HOLD");
	long sum = 0;
	low = mmap(0, 2 * PART, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	CHECK(low != MAP_FAILED);
	memcpy(low, code, sizeof code);
	/* nopal attaches to a thread in 32-bit code. */
	while (hold && access(hold, F_OK) != 0)
		visit(0);
	for (int i = 0; i < ROUNDS; i++)
		sum += visit(leaf(i));
	printf("%ld\n", sum);
	return 14;
}
