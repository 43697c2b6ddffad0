/* Linked to interposer.c. */
#include "hard.h"

// calls: 9 labs
// calls: 9 next_function

int main(void)
{
	long (*volatile absolute)(long) = labs;
	for (long i = 0; i < 9; i++)
		CHECK(absolute(-i) == i);
	puts("interposed");
	return 0;
}
