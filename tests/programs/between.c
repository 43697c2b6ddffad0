/* A library that calls another one. */
#include "hard.h"

extern int library_entry(int (*callback)(int), int n);

KEPT static int between_callback(int n)
{
	EFFECT();
	return 2 * n;
}

int between(int n)
{
	int result = library_entry(between_callback, n);
	EFFECT();
	return result;
}
