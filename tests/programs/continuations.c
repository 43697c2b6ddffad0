/* Continuations as runtimes of Scheme have them: the part of the stack between the program's begin and a call is copied
 * away, and comes back when the continuation is invoked, perhaps several times. */
#include "hard.h"
#include <setjmp.h>
#include <string.h>

// calls: 300 enters

struct continuation {
	jmp_buf place;
	char *low;
	size_t bytes;
	char copy[1 << 16];
};

static char *begin;
static struct continuation generators[2], callers[2];
static volatile int passed;

KEPT static int capture(struct continuation *to)
{
	volatile char here = 0;
	if (_setjmp(to->place))
		return 1;
	to->low = (char *)&here - 512;
	to->bytes = begin - to->low;
	CHECK(to->bytes < sizeof to->copy);
	memcpy(to->copy, to->low, to->bytes);
	return 0;
}

KEPT static void invoke(struct continuation *to)
{
	volatile char room[4096];
	room[0] = 0;
	/* Out of the way of what comes back. */
	if ((char *)room < to->low) {
		memcpy(to->low, to->copy, to->bytes);
		longjmp(to->place, 1);
	}
	invoke(to);
	EFFECT();
}

/* Gives its levels one after the other, each to who asked for it. */
KEPT static void gives(int generator, int level)
{
	if (level > 1) {
		gives(generator, level - 1);
		EFFECT();
	}
	passed = level;
	if (!capture(&generators[generator]))
		invoke(&callers[generator]);
}

KEPT static int asks(int generator, int first)
{
	if (!capture(&callers[generator])) {
		if (first)
			gives(generator, 100);
		else
			invoke(&generators[generator]);
	}
	return passed;
}

KEPT static int enters(int generator, int levels, int first)
{
	if (levels)
		return RETURNED(enters(generator, levels - 1, first));
	return RETURNED(asks(generator, first));
}

KEPT static long all(void)
{
	long sum = 0;
	for (volatile int round = 0; round < 50; round++)
		for (volatile int generator = 0; generator < 2; generator++)
			sum = sum * 7 % 1000003 + enters(generator, 2, round == 0);
	return sum;
}

int main(void)
{
	char here;
	begin = &here;
	long sum = RETURNED(all());
#ifdef HOLD
	for (int i = 0; i < 20000; i++)
		CHECK(RETURNED(all()) == sum);
#endif
	printf("%ld\n", sum);
	return 0;
}
