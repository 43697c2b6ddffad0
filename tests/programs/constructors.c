/* Functions that run before and after main, in the executable. */
#include "hard.h"

// calls: 1 early
// calls: 1 late
// calls: 1 at_exit
// calls: 3 leaf

KEPT static int leaf(int n)
{
	EFFECT();
	return n + 1;
}

KEPT __attribute__((constructor)) static void early(void) { printf("early %d\n", leaf(0)); }
KEPT __attribute__((destructor)) static void late(void) { printf("late %d\n", leaf(2)); }
KEPT static void at_exit(void) { printf("at exit %d\n", leaf(1)); }

int main(void)
{
	atexit(at_exit);
	puts("main");
	return 0;
}
