/* longjmp through recursion: to the top, to levels in between, by the compiler's own jump, and many times over. */
#include "hard.h"
#include <setjmp.h>

// calls: 20200 descend
// calls: 250 level
// calls: 10100 builtin_descend
// calls: 700 leaf

static jmp_buf top;
static void *builtin_top[5];

KEPT static int leaf(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static int descend(int left)
{
	if (left == 0)
		longjmp(top, 7);
	return RETURNED(descend(left - 1)) + 1;
}

/* Each level sets its own jump buffer; the deepest jumps to the middle one. */
static jmp_buf levels[5];

KEPT static int level(int n)
{
	volatile int mine = n;
	int value = setjmp(levels[n]);
	if (value)
		return mine * 100 + value;
	if (n == 4)
		longjmp(levels[2], leaf(n));
	return RETURNED(level(n + 1)) + 1000;
}

KEPT static int builtin_descend(int left)
{
	if (left == 0)
		__builtin_longjmp(builtin_top, 1);
	return RETURNED(builtin_descend(left - 1)) + 1;
}

KEPT static int by_builtin(int left)
{
	if (__builtin_setjmp(builtin_top))
		return -1;
	return builtin_descend(left);
}

int main(void)
{
	volatile int jumps = 0;
	for (volatile int i = 0; i < 200; i++) {
		int value = setjmp(top);
		if (value == 0)
			descend(100);
		CHECK(value == 7);
		jumps++;
		CHECK(leaf(i) == i + 1);
	}
	printf("jumps %d\n", jumps);
	for (volatile int i = 0; i < 50; i++)
		CHECK(level(0) == 2000 + 205);
	puts("levels");
	for (volatile int i = 0; i < 100; i++)
		CHECK(by_builtin(100) == -1);
	for (volatile int i = 0; i < 450; i++)
		CHECK(leaf(i) == i + 1);
	puts("builtin");
	return 0;
}
