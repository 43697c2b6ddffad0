/* Loads and unloads a library in a loop, calls back and forth. Arguments: the library, how often. */
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
	int often = atoi(words[2]);
	for (int i = 0; i < often; i++) {
		void *library = dlopen(words[1], i % 2 ? RTLD_NOW : RTLD_LAZY);
		if (!library)
			puts(dlerror());
		CHECK(library);
		int (*entry)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "library_entry");
		CHECK(entry && entry(callback, CALLS) == 140);
		CHECK(dlclose(library) == 0);
		CHECK(dlopen(words[1], RTLD_NOW | RTLD_NOLOAD) == NULL);
	}
	CHECK(dlopen("libno_such.so.1", RTLD_NOW) == NULL && dlerror());
	puts("loaded and unloaded");
	printf("calls: %d callback\n", often * CALLS);
	printf("calls: %d library_entry\ncalls: %d library_leaf\n", often, often * CALLS);
	printf("calls: %d library_inner\n", often * CALLS);
	return 0;
}
