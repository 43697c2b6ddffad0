/* Two flows that share a stack: each switch copies the part in use away and the other flow's part back, as PyPy and
 * greenlet do. Other calls take its calls' place meanwhile. With BY_DISTANCE, the stack pointer moves as there. */
#include "hard.h"
#include <string.h>

enum { MAIN, OTHER };

static struct {
	char *low, *copy;
	size_t size;
} parts[2];
static char *high;
static int running, handed;

/* Copies the running flow's stack away. Returns the other's stack pointer, or null if it has not begun. */
__attribute__((used)) static char *copy_away(char *low)
{
	parts[running].low = low;
	parts[running].size = (size_t)(high - low);
	parts[running].copy = realloc(parts[running].copy, parts[running].size);
	memcpy(parts[running].copy, low, parts[running].size);
	running = !running;
	return parts[running].low;
}

__attribute__((used)) static void copy_back(void)
{
	memcpy(parts[running].low, parts[running].copy, parts[running].size);
}

/* Returns whether the other flow has yet to begin. */
int go_to_other(void);
__asm__(".globl go_to_other\n.hidden go_to_other\n.type go_to_other, @function\n.p2align 4\n"
	"go_to_other:\n"
	"	push %rbp\n	push %rbx\n	push %r12\n	push %r13\n	push %r14\n	push %r15\n"
	"	sub $8, %rsp\n"
	"	mov %rsp, %rbx\n	mov %rbx, %rdi\n"
	"	call copy_away\n"
	"	mov %rax, %rdx\n	mov $1, %eax\n	test %rdx, %rdx\n	jz 1f\n"
#ifdef BY_DISTANCE
	"	sub %rbx, %rdx\n	add %rdx, %rsp\n	add %rdx, %rbp\n"
#else
	"	mov %rdx, %rsp\n	mov %rdx, %rdi\n"
#endif
	"	call copy_back\n"
	"	xor %eax, %eax\n"
	"1:	add $8, %rsp\n"
	"	pop %r15\n	pop %r14\n	pop %r13\n	pop %r12\n	pop %rbx\n	pop %rbp\n	ret\n"
	".size go_to_other, . - go_to_other\n");

/* Passes on 1 to 100, each from another depth. */
KEPT int down(int levels)
{
	if (levels == 0) {
		go_to_other();
		return 0;
	}
	return RETURNED(down(levels - 1)) + 1;
}

KEPT void other(void)
{
	for (;;) {
		handed += RETURNED(down(handed % 10)) + 1;
	}
}

// calls: 100 next
KEPT int next(void)
{
	if (go_to_other()) {
		other();
	}
	return handed;
}

KEPT int differently(int levels)
{
	return levels ? RETURNED(differently(levels - 1)) + levels : 0;
}

int main(void)
{
	high = __builtin_frame_address(0);
	long sum = 0;
	for (int i = 0; i < 100; i++) {
		sum += next();
		sum += differently(i % 13);
	}
	printf("%ld\n", sum);
	return 12;
}
