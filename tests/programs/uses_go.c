/* Calls a library that is written in Go, between functions of its own. Argument: the library, moving.go. */
#include "hard.h"
#include <dlfcn.h>
#include <unistd.h>

enum { CALLS = 400, SUM = 2000 };

// calls: 400 leaf

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

int main(int count, char **words)
{
	CHECK(count == 2);
	void *library = dlopen(words[1], RTLD_NOW);
	CHECK(library);
	long (*go)(long);
	*(void **)&go = dlsym(library, "GoWork");
	CHECK(go);
	for (long i = 0; i < CALLS; i++)
		CHECK(go(i) + leaf(0) == SUM + i + 1);
	puts("done");
	fflush(stdout);
	_exit(0);
}
