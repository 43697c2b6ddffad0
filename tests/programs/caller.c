/* Functions that ask who called them. */
#define _GNU_SOURCE
#include "hard.h"
#include <dlfcn.h>
#include <string.h>

// calls: 100 within
// calls: 100 asks

extern char __executable_start, etext;

KEPT static int within(void)
{
	char *caller = __builtin_return_address(0);
	return caller > &__executable_start && caller < &etext;
}

KEPT static int asks(void)
{
	int right = within();
	EFFECT();
	return right;
}

/* Replaces libc's: the result of RTLD_NEXT depends on the caller. */
KEPT char *strfry(char *text)
{
	char *(*next)(char *) = (char *(*)(char *))dlsym(RTLD_NEXT, "strfry");
	CHECK(next != NULL && next != strfry);
	return next(text);
}

int main(void)
{
	int right = 0;
	for (int i = 0; i < 100; i++)
		right += asks();
	char text[] = "cactus";
	CHECK(strlen(strfry(text)) == 6);
	printf("%d\n", right);
	return right == 100 ? 0 : 1;
}
