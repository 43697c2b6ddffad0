/* Needs a library without functions, and one behind it with many. */
#include <stdio.h>

extern int data_only[4];
int many(int value);

__attribute__((noinline)) int own(int value)
{
	__asm__ volatile("" : "+r"(value));
	return value * 5 + 1;
}

int main(void)
{
	int sum = 0;

	for (int i = 0; i < 10; i++)
		sum = own(many(sum & 0xff)) % 1000 + data_only[i & 3];
	printf("%d\n", sum);
	return 0;
}
