/* Loads libraries one after the other and keeps them. Arguments: their directory, and the number of copies of library.c
 * in it: libplugin0.so and so on. */
#include "hard.h"
#include <dlfcn.h>

#define CALLS 10

static volatile int called;

KEPT static int callback(int n)
{
	called++;
	return 2 * n;
}

int main(int count, char **words)
{
	CHECK(count == 3);
	int many = atoi(words[2]);
	for (int i = 0; i < many; i++) {
		char path[4096];
		snprintf(path, sizeof path, "%s/libplugin%d.so", words[1], i);
		void *library = dlopen(path, RTLD_NOW);
		if (!library)
			puts(dlerror());
		CHECK(library);
		int (*entry)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "library_entry");
		CHECK(entry && entry(callback, CALLS) == 140);
	}
	puts("all are loaded");
	printf("calls: %d callback\ncalls: %d library_entry\ncalls: %d library_leaf\n", many * CALLS, many, many * CALLS);
	return 0;
}
