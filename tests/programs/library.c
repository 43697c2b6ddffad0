/* A library that is loaded, called and unloaded again and again. */
#include "hard.h"

int library_value;

__attribute__((constructor)) static void on_load(void) { library_value = 40; }
__attribute__((destructor)) static void on_unload(void) { library_value = 0; }

KEPT static int library_inner(int n)
{
	for (volatile int i = 0; i < 10; i++)
		EFFECT();
	return n + 1;
}

KEPT int library_leaf(int n)
{
	EFFECT();
	int next = library_inner(n);
	EFFECT();
	return next;
}

int library_entry(int (*callback)(int), int n)
{
	int result = 0;
	for (int i = 0; i < n; i++)
		result += library_leaf(callback(i));
	return result + library_value;
}
