/* Functions whose names a test replaces, each by one of the same length; one with a name of 1 MiB; and a thread and a
 * process with hostile names. Calls each at the start, and again for each line. */
#include "hard.h"
#include <pthread.h>
#include <sys/prctl.h>

#define PADDING "________________________________________"
#define NAMED(number)                                                                     \
	static long hostile_##number(long n) __asm__("hostile_" #number PADDING);         \
	KEPT static long hostile_##number(long n)                                         \
	{                                                                                 \
		EFFECT();                                                                 \
		return n + 1;                                                             \
	}

#define TIMES_16(text) text text text text text text text text text text text text text text text text
#define MIB TIMES_16(TIMES_16(TIMES_16(TIMES_16(TIMES_16("x")))))

NAMED(00)
NAMED(01)
NAMED(02)
NAMED(03)
NAMED(04)
NAMED(05)
NAMED(06)
NAMED(07)
NAMED(08)
NAMED(09)
NAMED(10)
NAMED(11)

static long endless(long n) __asm__(MIB);
KEPT static long endless(long n)
{
	EFFECT();
	return n + 1;
}

KEPT static void *everything(void *name)
{
	prctl(PR_SET_NAME, name);
	long n = hostile_00(hostile_01(hostile_02(hostile_03(hostile_04(hostile_05(0))))));
	n = hostile_06(hostile_07(hostile_08(hostile_09(hostile_10(hostile_11(n))))));
	CHECK(endless(n) == 13);
	return NULL;
}

int main(void)
{
	char line[16];
	do {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, everything, "\033[2J\n\"\xff\342\200\256") == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		everything("\n\033]0;\a<b>");
		puts("done");
		fflush(stdout);
	} while (fgets(line, sizeof line, stdin));
	return 5;
}
