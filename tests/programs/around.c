/* Linked to between.c, which calls library.c. */
#include "hard.h"

// calls: 5 between
// calls: 5 library_entry

extern int between(int n);

int main(void)
{
	for (int i = 0; i < 5; i++)
		CHECK(between(3) == 49);
	puts("around");
	return 0;
}
