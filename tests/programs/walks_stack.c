/* Looks for return addresses where calls leave them, as V8 does from the stack pointer of its last call out of
 * generated code. */
#include "hard.h"

// calls: 100 called
// calls: 100 walk

extern char after_call[];
long *last_stack;

/* V8 is known by this name. */
__attribute__((used, visibility("default"))) void *v8_isolate(void) __asm__("_ZN2v87Isolate10GetCurrentEv");
void *v8_isolate(void) { return NULL; }

KEPT static int walk(void)
{
	return last_stack[-1] == (long)after_call;
}

__attribute__((used)) KEPT static int called(void)
{
	int right = walk();
	EFFECT();
	return right;
}

int call_out(void);
__asm__(".text\n"
	".type call_out, @function\n"
	"call_out:\n"
	"	push %rbx\n"
	"	mov %rsp, last_stack(%rip)\n"
	"	call called\n"
	".globl after_call\n"
	"after_call:\n"
	"	pop %rbx\n"
	"	ret\n"
	".size call_out, .-call_out\n");

int main(void)
{
	int right = 0;
	for (int i = 0; i < 100; i++)
		right += call_out();
	printf("%d\n", right);
	return right == 100 ? 0 : 1;
}
