/* Forbids other processes of its user to inspect it. */
#include "hard.h"
#include <sys/prctl.h>

// calls: 1000 work

KEPT static int work(int n)
{
	EFFECT();
	return n * 37 + 5;
}

int main(void)
{
	int sum = 0;
	CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
	for (int i = 0; i < 1000; i++)
		sum += work(i);
	printf("%d %d\n", sum, prctl(PR_GET_DUMPABLE));
	return 0;
}
