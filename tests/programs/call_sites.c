/* A function that is called at several places, also by a jump, and one that ends with a call that does not return. */
#include <stdlib.h>

__attribute__((noipa)) int leaf(int x)
{
	return x + 1;
}

__attribute__((noipa)) int jump(int x)
{
	return leaf(2 * x);
}

__attribute__((noipa)) int twice(int x)
{
	int first = leaf(x);
	int second = leaf(first + 3);
	return first * second + jump(second);
}

__attribute__((noipa, noreturn)) void finish(int status)
{
	exit(status);
}

int main(void)
{
	int sum = twice(1);
	finish(sum + leaf(1) - 27);
}
