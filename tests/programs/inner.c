/* A library with functions that are called from within it only: a small one, one with a system call, and a large one. */
#include "hard.h"
#include <sys/syscall.h>

KEPT static int inner_large(int n)
{
	EFFECT();
	__asm__ volatile(".skip 300, 0x90");
	return n + 1;
}

KEPT static int inner_kernel(int n)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "0"(SYS_getpid) : "rcx", "r11", "memory");
	return n + (result == 0);
}

KEPT static int inner_small(int n)
{
	EFFECT();
	return RETURNED(inner_large(n)) + RETURNED(inner_kernel(n));
}

int inner(int n)
{
	return RETURNED(inner_small(n));
}
