/* The remaining names in a file without symbols: exported names, and addresses. */
#include "hard.h"

// calls: 700 exported

KEPT int exported(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static int hidden(int n)
{
	int sum = 0;
	for (int i = 0; i < 7; i++)
		sum += exported(n);
	return sum;
}

int main(void)
{
	int sum = 0;
	for (int i = 0; i < 100; i++)
		sum += hidden(i);
	printf("sum %d\n", sum);
	return 0;
}
