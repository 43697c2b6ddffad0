/* Loads its argument, a library, as soon as it has nopal's memory, before its functions can be recorded; once its input
 * ends, calls the library. Many functions have nopal take its time. */
#define _GNU_SOURCE
#include "hard.h"
#include <dlfcn.h>
#include <string.h>

// calls: 1 library_entry
// calls: 10 library_leaf

#define ONE(number) \
	KEPT int busy_##number(int value) \
	{ \
		EFFECT(); \
		return value * (number + 3); \
	}
#define TEN(number) \
	ONE(number##0) ONE(number##1) ONE(number##2) ONE(number##3) ONE(number##4) \
	ONE(number##5) ONE(number##6) ONE(number##7) ONE(number##8) ONE(number##9)
#define HUNDRED(number) \
	TEN(number##0) TEN(number##1) TEN(number##2) TEN(number##3) TEN(number##4) \
	TEN(number##5) TEN(number##6) TEN(number##7) TEN(number##8) TEN(number##9)
#define THOUSAND(number) \
	HUNDRED(number##0) HUNDRED(number##1) HUNDRED(number##2) HUNDRED(number##3) HUNDRED(number##4) \
	HUNDRED(number##5) HUNDRED(number##6) HUNDRED(number##7) HUNDRED(number##8) HUNDRED(number##9)
THOUSAND(1)
THOUSAND(2)
THOUSAND(3)
THOUSAND(4)

static int is_there(void)
{
	char line[512];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	CHECK(maps);
	while (fgets(line, sizeof line, maps))
		found |= strstr(line, "nopal") && strstr(line, "memfd");
	CHECK(fclose(maps) == 0);
	return found;
}

static int same(int value) { return value; }

int main(int count, char **words)
{
	CHECK(count == 2);
	while (!is_there()) {
	}
	void *library = dlopen(words[1], RTLD_NOW);
	CHECK(library);
	int (*entry)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "library_entry");
	CHECK(entry);
	while (getchar() != EOF) {
	}
	CHECK(entry(same, 10) == 95);
	puts("called");
	return 0;
}
