/* A program whose frames a library follows: the first argument is its path, and it is loaded after some calls, unless
 * it is loaded already. */
#include "hard.h"
#include <dlfcn.h>

// calls: 1100 deep

extern const char __executable_start, etext;
static int (*walk)(const void **found, int most);

KEPT static int deep(int levels)
{
	if (levels) {
		return RETURNED(deep(levels - 1));
	}
	const void *found[8];
	int own = 0, count = walk ? walk(found, 8) : 0;
	for (int i = 0; i < count; i++) {
		own += (const char *)found[i] > &__executable_start && (const char *)found[i] < &etext;
	}
	return own;
}

int main(int count, char **words)
{
	int right = 0;
	CHECK(count == 2);
	for (int i = 0; i < 50; i++) {
		right += deep(9) == 0;
	}
	walk = (int (*)(const void **, int))dlsym(dlopen(words[1], RTLD_NOW), "walk");
	CHECK(walk);
	for (int i = 0; i < 50; i++) {
		right += deep(11) == 8;
	}
	printf("%d\n", right);
	return right == 100 ? 0 : 1;
}
