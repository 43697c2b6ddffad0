/* Linked to inner.c. */
#include "hard.h"

// calls: 5 inner
// calls: 5 inner_large
// calls: 5 inner_pointed
// calls: 5 inner_behind_pointed
// calls: 5 inner_kernel

extern int inner(int n);

int main(void)
{
	for (int i = 0; i < 5; i++)
		CHECK(inner(3) == 7);
	puts("outer");
	return 0;
}
