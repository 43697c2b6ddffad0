/* A function that is called all the time and shows little, and two that are called now and then, a tiny and a slow one, for
 * the given milliseconds of processor time. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Nanoseconds, several times as many as a round takes whose calls are all recorded. */
enum { MOST_OF_ROUND = 50000000 };

static volatile unsigned sum;

__attribute__((noinline)) unsigned tiny(unsigned number)
{
	return number * 2654435761u ^ number >> 3;
}

__attribute__((noinline)) unsigned seldom(unsigned number)
{
	return number * 2246822519u ^ number >> 5;
}

__attribute__((noinline)) void slow(unsigned number)
{
	for (unsigned i = 0; i < 100000; i++)
		sum += i * number;
}

static unsigned long used(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (unsigned long)time.tv_sec * 1000000000 + (unsigned long)time.tv_nsec;
}

int main(int count, char **arguments)
{
	unsigned long left = (count > 1 ? strtoul(arguments[1], NULL, 10) : 1000) * 1000000;
	unsigned long tinies = 0, slows = 0;
	for (unsigned long before = used(), took; left > 0; before += took) {
		for (unsigned i = 0; i < 300000; i++, tinies++)
			sum += tiny(i);
		slow(++slows);
		sum += seldom(slows);
		took = used() - before;
		/* In a virtual machine, the time of the host counts as used. */
		unsigned long most = took < MOST_OF_ROUND ? took : MOST_OF_ROUND;
		left -= most < left ? most : left;
	}
	printf("tiny %lu\nslow %lu\n", tinies, slows);
	return 0;
}
