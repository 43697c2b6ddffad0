/* Linked to library.c: its imported function is traced by default, the library's inner calls are not. */
#include "hard.h"

// calls: 8 library_entry
// calls: 24 callback

extern int library_entry(int (*callback)(int), int n);

static volatile int called;

KEPT static int callback(int n)
{
	called++;
	return 2 * n;
}

int main(void)
{
	for (int i = 0; i < 8; i++)
		CHECK(library_entry(callback, 3) == 49);
	puts("linked");
	return 0;
}
