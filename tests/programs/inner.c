/* A library with functions that are called from within it only: a small one, one with a system call, and large ones, of
 * which a table holds one, and that one calls another; and one that cannot be traced. */
#include "hard.h"
#include <sys/syscall.h>

KEPT static int inner_large(int n)
{
	EFFECT();
	__asm__ volatile(".skip 300, 0x90");
	return n + 1;
}

KEPT static int inner_behind_pointed(int n)
{
	EFFECT();
	__asm__ volatile(".skip 300, 0x90");
	return n + 1;
}

KEPT static int inner_pointed(int n)
{
	EFFECT();
	__asm__ volatile(".skip 300, 0x90");
	return RETURNED(inner_behind_pointed(n));
}

KEPT static int inner_small_pointed(int n)
{
	EFFECT();
	return n + 1;
}

static int (*volatile inner_table[])(int) = {inner_pointed, inner_small_pointed};

KEPT static int inner_kernel(int n)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "0"(SYS_getpid) : "rcx", "r11", "memory");
	return n + (result == 0);
}

KEPT static int inner_small(int n)
{
	EFFECT();
	n = RETURNED(inner_table[0](n)) - RETURNED(inner_table[1](n)) + n;
	return RETURNED(inner_large(n)) + RETURNED(inner_kernel(n));
}

/* Cannot be traced: it jumps back to its first instruction. */
__attribute__((naked)) KEPT static int inner_refused(int n)
{
	__asm__("1:	dec %edi\n\t"
		"mov %edi, %eax\n\t"
		".skip 4, 0x90\n\t"
		"jnz 1b\n\t"
		".skip 400, 0x90\n\t"
		"ret");
}

int inner(int n)
{
	CHECK(inner_refused(10000) == 0);
	return RETURNED(inner_small(n));
}
