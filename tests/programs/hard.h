/* The common parts of the test programs. Each checks itself and prints the same text on every run.
 *
 * Exact numbers of calls, for the tests to compare with the trace, stand in a program's source as
 *     // calls: NUMBER FUNCTION
 * Numbers known only at run time are printed in the same form, as a line "calls: NUMBER FUNCTION", which the
 * tests take out of the output before they compare it.
 */
#ifndef HARD_H
#define HARD_H

#include <stdio.h>
#include <stdlib.h>

#ifdef HOLD
#include <unistd.h>

/* The program is busy before its work until the file exists that the variable HOLD names, so that a tracer can be
 * attached to it. */
static __attribute__((constructor)) void hold(void)
{
	const char *file = getenv("HOLD");
	while (file && access(file, F_OK) != 0) {
		for (volatile int i = 0; i < 1000; i++) {
		}
	}
}
#endif

/* A function that stays one function, called as often as the source says. */
#if defined(__clang__)
#define KEPT __attribute__((noinline))
#else
#define KEPT __attribute__((noinline, noclone, noipa))
#endif

/* Keeps a compiler from seeing that a call has no effect. */
#define EFFECT() __asm__ volatile("" ::: "memory")

/* The value of a call that must return here: not in tail position, not to be made into a loop. */
#define RETURNED(call)                                                                                               \
	({                                                                                                           \
		__typeof__(call) returned_ = (call);                                                                 \
		EFFECT();                                                                                            \
		returned_;                                                                                           \
	})

#define CHECK(condition)                                                                                             \
	do {                                                                                                         \
		if (!(condition)) {                                                                                  \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                               \
			fflush(stdout);                                                                              \
			_Exit(99);                                                                                   \
		}                                                                                                    \
	} while (0)

#endif
