/* Discards the pages of its text, or maps its file over them, when it is told to. */
#define _GNU_SOURCE
#include "hard.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

KEPT static int leaf(int value)
{
	EFFECT();
	return value + 1;
}

KEPT __attribute__((aligned(PAGE))) static int apart(int value)
{
	EFFECT();
	return value + 2;
}

/* Otherwise nopal knew from the code that the function is read. */
static int (*volatile hidden)(int) = apart;

int main(void)
{
	char line[16];
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "discard\n"))
			CHECK(madvise((void *)hidden, PAGE, MADV_DONTNEED) == 0);
		for (int i = 0; i < 100; i++)
			CHECK(leaf(apart(i)) == i + 3);
		puts("done");
		fflush(stdout);
	}
	return 5;
}
