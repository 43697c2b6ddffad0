/* Coroutines by ucontext on heap stacks: generators that call deep and end, and whose stacks are freed and reused. */
#include "hard.h"
#include <ucontext.h>

// calls: 40 generator
// calls: 4000 produce
// calls: 4000 resume
// calls: 4000 leaf
// calls: 16000 nested

#define STACK (64 << 10)

static ucontext_t caller, inside;
static int produced, limit;

KEPT static int leaf(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static void produce(int value)
{
	produced = leaf(value);
	swapcontext(&inside, &caller);
}

/* Switches away from within a recursion. */
KEPT static void nested(int left, int value)
{
	if (left)
		nested(left - 1, value);
	else
		produce(value);
	EFFECT();
}

KEPT static void generator(void)
{
	for (int i = 0; i < limit; i++)
		nested(3, i);
}

KEPT static int resume(void)
{
	CHECK(swapcontext(&caller, &inside) == 0);
	return produced;
}

int main(void)
{
	long sum = 0;
	limit = 100;
	for (int round = 0; round < 40; round++) {
		char *stack = malloc(STACK);
		CHECK(getcontext(&inside) == 0);
		inside.uc_stack.ss_sp = stack;
		inside.uc_stack.ss_size = STACK;
		inside.uc_link = &caller;
		makecontext(&inside, generator, 0);
		for (int i = 0; i < limit; i++) {
			CHECK(resume() == i + 1);
			sum += produced;
		}
		/* Lets it return from its function, back to here by uc_link. */
		CHECK(swapcontext(&caller, &inside) == 0);
		free(stack);
	}
	printf("sum %ld\n", sum);
	return 0;
}
