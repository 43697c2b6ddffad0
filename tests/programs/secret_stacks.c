/* A coroutine whose stack no other process can read (memfd_secret; ordinary memory if the kernel has none). For each
 * line it calls one level deeper and waits there; at the end of the input it returns from all levels. */
#define _GNU_SOURCE
#include "hard.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

enum { SIZE = 1 << 20 };

static ucontext_t main_context, coroutine;
static int deeper = 1, depth, result;

KEPT static int held(int n)
{
	depth = n;
	swapcontext(&coroutine, &main_context);
	return deeper ? RETURNED(held(n + 1)) + 1 : 0;
}

static void body(void)
{
	result = held(0);
}

int main(void)
{
	char line[16];
	int file = (int)syscall(SYS_memfd_secret, 0);
	int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	CHECK(file < 0 || ftruncate(file, SIZE) == 0);
	char *stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, kind, file, 0);
	CHECK(stack != MAP_FAILED);
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = stack;
	coroutine.uc_stack.ss_size = SIZE;
	coroutine.uc_link = &main_context;
	makecontext(&coroutine, body, 0);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		swapcontext(&main_context, &coroutine);
		printf("done\n");
		fflush(stdout);
	}
	deeper = 0;
	swapcontext(&main_context, &coroutine);
	CHECK(result == depth);
	return 5;
}
