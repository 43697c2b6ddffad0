/* Loads a library and a libc of its own into a new namespace of the loader, again and again. Argument: the library. */
#define _GNU_SOURCE
#include "hard.h"
#include <dlfcn.h>

enum { ROUNDS = 40 };

KEPT static int callback(int n)
{
	EFFECT();
	return 2 * n;
}

int main(int count, char **arguments)
{
	long sum = 0;
	CHECK(count == 2);
	for (int round = 0; round < ROUNDS; round++) {
		void *library = dlmopen(LM_ID_NEWLM, arguments[1], RTLD_NOW);
		CHECK(library);
		int (*entry)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "library_entry");
		for (int i = 0; i < 1000; i++)
			sum += entry(callback, 3);
		CHECK(dlclose(library) == 0);
	}
	printf("%ld\n", sum);
	return 5;
}
