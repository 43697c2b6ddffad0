/* Functions of four durations, each under two callers. Prints for each what a call of the outer one takes at least, in
 * nanoseconds, with all that is called in it. */
#include "measure.h"
#include <stdio.h>

#define KEPT __attribute__((noinline, noclone, noipa))

/* A turn takes a clock cycle. */
static inline __attribute__((always_inline)) void spin(long turns)
{
	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(turns) : : "cc");
}

#define FUNCTIONS(name, turns)                                                                                       \
	KEPT void spin_##name(void) { spin(turns); }                                                                 \
	KEPT void middle_##name(void)                                                                                \
	{                                                                                                            \
		for (int i = 0; i < 10; i++)                                                                         \
			spin_##name();                                                                               \
	}                                                                                                            \
	KEPT void outer_##name(void)                                                                                 \
	{                                                                                                            \
		for (int i = 0; i < 10; i++)                                                                         \
			middle_##name();                                                                             \
	}

FUNCTIONS(50ns, 150)
FUNCTIONS(200ns, 600)
FUNCTIONS(1us, 3000)
FUNCTIONS(10us, 30000)

static void measure(const char *name, void (*outer)(void), int calls)
{
	double lowest = 1e18;
	for (int i = 0; i < calls; i++) {
		double begin = nanoseconds();
		outer();
		double time = nanoseconds() - begin;
		if (time < lowest)
			lowest = time;
	}
	printf("%s %.1f\n", name, lowest);
}

int main(void)
{
	measure("50ns", outer_50ns, 2000);
	measure("200ns", outer_200ns, 500);
	measure("1us", outer_1us, 100);
	measure("10us", outer_10us, 20);
	return 0;
}
