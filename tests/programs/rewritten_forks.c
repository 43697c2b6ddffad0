/* Parent and child change the same function, each in its own memory, and so does a child in its parent's memory. */
#define _GNU_SOURCE
#include "hard.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, MOV = 0xb8 };

KEPT __attribute__((aligned(PAGE))) static int constant(void)
{
	int value;
	__asm__ volatile("movl $0, %0" : "=a"(value));
	return value;
}

KEPT __attribute__((aligned(PAGE))) static int apart(int n)
{
	EFFECT();
	return n + 3;
}

/* Otherwise nopal knew from the code that the function is read. */
static int (*volatile hidden)(void) = constant;

/* Without a check that prints: it may run in the parent's memory. */
static int rewrite(int value)
{
	unsigned char *code = (unsigned char *)hidden;
	if (mprotect(code, PAGE, PROT_READ | PROT_WRITE) != 0 || *code != MOV)
		return 1;
	memcpy(code + 1, &value, sizeof value);
	return mprotect(code, PAGE, PROT_READ | PROT_EXEC) != 0 || hidden() != value;
}

static int wait_for(pid_t child)
{
	int status = -1;
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

int main(void)
{
	int go[2];
	char none;
	CHECK(pipe(go) == 0);
	CHECK(hidden() == 0);
	pid_t late = fork();
	if (late == 0) {
		close(go[1]);
		_exit(read(go[0], &none, 1) != 0 || hidden() != 0 || rewrite(5));
	}
#if defined IN_PARENT
	pid_t beside = vfork();
	if (beside == 0)
		_exit(rewrite(6));
	CHECK(wait_for(beside) == 0 && hidden() == 6);
#endif
	CHECK(rewrite(7) == 0);
	close(go[1]);
	CHECK(wait_for(late) == 0);
	printf("%d\n", apart(hidden()));
	return 16;
}
