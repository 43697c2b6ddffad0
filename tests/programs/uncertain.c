/* A jump that leaves it uncertain whether the call in which it ends is still open; then many calls in that one. */
#include "hard.h"
#include <setjmp.h>

static jmp_buf place;

KEPT static int leaf(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static void jump(void)
{
	longjmp(place, 1);
}

KEPT static void run(int calls)
{
	if (!setjmp(place))
		jump();
	for (int i = 0; i < calls; i++)
		leaf(i);
}

int main(void)
{
	run(50000);
	return 0;
}
