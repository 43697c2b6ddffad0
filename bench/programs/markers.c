/* The cost of markers, measured like that of Linux Kernel Markers 0.19: cycles of the time stamp counter for one turn of a
 * loop, the least of many runs. Prints a name and a figure a line. */
#include <nopal.h>
#include <nopal_probe.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"
#include "measure.h"
#include "variable.h"

char from[4096], to[4096];        /* not static, so that the compiler keeps the copies */
#define SELDOM 200

LOOP(empty, )
LOOP(clock_read, sink = __rdtsc())
LOOP(off, NOPAL_MARK(off, "trap=%ld address=%p", i, pointer))
LOOP(generic_off, NOPAL_MARK_GENERIC(generic_off, "trap=%ld address=%p", i, pointer))
LOOP(on, NOPAL_MARK(on, "trap=%ld address=%p", i, pointer))
LOOP(generic_on, NOPAL_MARK_GENERIC(generic_on, "trap=%ld address=%p", i, pointer))
LOOP(text_on, NOPAL_MARK(text_on, "number=%ld text=%s", i, "sixteen letters."))
LOOP(variable_on, NOPAL_MARK_VARIABLE(variable_on, "trap=%ld address=%p", i, pointer))
LOOP(variable, NOPAL_MARK_VARIABLE(variable, "trap=%ld address=%p", i, pointer))
LOOP(probed, NOPAL_MARK(probed, "trap=%ld address=%p", i, pointer))
LOOP(generic_probed, NOPAL_MARK_GENERIC(generic_probed, "trap=%ld address=%p", i, pointer))
LOOP(bare, NOPAL_MARK(bare, ""))

LOOP(copy, memcpy(to, from, sizeof to); __asm__ volatile("" ::: "memory"))
LOOP(copy_off, NOPAL_MARK(copy_off, "trap=%ld address=%p", i, pointer); memcpy(to, from, sizeof to);
     __asm__ volatile("" ::: "memory"))
LOOP(copy_generic, NOPAL_MARK_GENERIC(copy_generic, "trap=%ld address=%p", i, pointer); memcpy(to, from, sizeof to);
     __asm__ volatile("" ::: "memory"))

/* A function with room for a hook at its entry, and for a probe. */
__attribute__((noinline, noclone, patchable_function_entry(5))) long target(long trap, void *of)
{
	__asm__ volatile("" : "+r"(trap) : "r"(of));
	return trap + 1;
}
LOOP(call, target(i, pointer))

static void hook(unsigned long ip, unsigned long parent)
{
	(void)ip;
	(void)parent;
}

static void second_hook(unsigned long ip, unsigned long parent)
{
	(void)ip;
	(void)parent;
}

static void empty_probe(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	(void)marker;
	(void)values;
}

/* Not static, so that the compiler keeps the stores. */
long value;
void *address;

NOPAL_PROBE(empty_general)(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	(void)marker;
	(void)values;
}

NOPAL_PROBE(direct_general)(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	(void)marker;
	value = (long)values[0];
	address = (void *)values[1];
}

NOPAL_REGISTER_PROBE(empty_at)(void *data, struct nopal_registers *registers)
{
	(void)data;
	(void)registers;
}

/* The arguments of `target`. */
NOPAL_REGISTER_PROBE(direct_at)(void *data, struct nopal_registers *registers)
{
	(void)data;
	value = (long)registers->di;
	address = (void *)registers->si;
}

static void direct_probe(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	(void)marker;
	value = (long)values[0];
	address = (void *)values[1];
}

/* Parses the format at each call, to find its values. */
NOPAL_PROBE(parsing_general)(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	for (const char *at = marker->format; *at; at++) {
		if (*at != '%')
			continue;
		do
			at++;
		while (*at && *at != 'd' && *at != 'p');
		switch (*at) {
		case 'd':
			value = (long)*values++;
			break;
		case 'p':
			address = (void *)*values++;
			break;
		default:
			return;
		}
	}
}

/* The same by functions of libc, which change vector registers. */
static void parsing_probe(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)data;
	for (const char *at = marker->format; (at = strchr(at, '%')); at++) {
		at += strspn(at + 1, "#0- +.123456789hlqjzt") + 1;
		switch (*at) {
		case 'd':
			value = (long)*values++;
			break;
		case 'p':
			address = (void *)*values++;
			break;
		}
	}
}

static void succeed(int result)
{
	if (result < 0) {
		fprintf(stderr, "%s\n", nopal_error());
		exit(1);
	}
}

static double with(const char *marker, void (*loop)(long), nopal_probe *probe, long turns)
{
	succeed(nopal_connect(marker, 0, probe, 0));
	double cycles = least(loop, turns);
	nopal_disconnect(marker, probe, 0);
	return cycles;
}

static double at_target(nopal_register_probe *probe)
{
	succeed(nopal_probe_at("target", probe, 0));
	double cycles = least(call, TURNS);
	nopal_unprobe(probe, 0);
	return cycles;
}

static double with_signals_blocked(const char *marker, void (*loop)(long), nopal_probe *probe)
{
	sigset_t all, before;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	double cycles = with(marker, loop, probe, TURNS);
	sigprocmask(SIG_SETMASK, &before, 0);
	return cycles;
}

static double cycles_per_ns(void)
{
	double ns = nanoseconds();
	unsigned long long cycles = __rdtsc();
	while (nanoseconds() - ns < 5e6)
		;
	cycles = __rdtsc() - cycles;
	return (double)cycles / (nanoseconds() - ns);
}

int main(int count, char **arguments)
{
	if (count > 1 && !strcmp(arguments[1], "counted"))
		counted = count = 1;
	/* Each turn may cost microseconds. */
	if (count > 1 && !strcmp(arguments[1], "seldom")) {
		printf("cycles_per_ns %.4f\n", cycles_per_ns());
		SHOW(call, SELDOM);
		printf("direct_probe %.3f\n", with("probed", probed, direct_probe, SELDOM));
		return 0;
	}
	SHOW(empty, TURNS);
	SHOW(clock_read, TURNS);
	if (count > 1) {
		SHOW(on, TURNS);
		SHOW(call, TURNS);
		return 0;
	}
	SHOW(off, TURNS);
	SHOW(generic_off, TURNS);
	SHOW(copy, 200);
	SHOW(copy_off, 200);
	SHOW(copy_generic, 200);
	/* In a recording, these are on. */
	SHOW(on, TURNS);
	SHOW(generic_on, TURNS);
	SHOW(text_on, TURNS);
	SHOW(variable_on, TURNS);
	printf("bare_general %.3f\n", with("bare", bare, empty_general, TURNS));
	printf("empty_general %.3f\n", with("probed", probed, empty_general, TURNS));
	printf("generic_general %.3f\n", with("generic_probed", generic_probed, empty_general, TURNS));
	/* A breakpoint that counts would meet a blocked SIGTRAP. */
	if (!counted)
		printf("blocked_general %.3f\n", with_signals_blocked("probed", probed, empty_general));
	printf("direct_general %.3f\n", with("probed", probed, direct_general, TURNS));
	printf("parsing_general %.3f\n", with("probed", probed, parsing_general, TURNS));
	printf("empty_probe %.3f\n", with("probed", probed, empty_probe, TURNS));
	printf("direct_probe %.3f\n", with("probed", probed, direct_probe, TURNS));
	printf("parsing_probe %.3f\n", with("probed", probed, parsing_probe, TURNS));
	printf("variable_probe %.3f\n", with("variable", variable, empty_probe, TURNS));
	printf("cycles_per_ns %.4f\n", cycles_per_ns());
	SHOW(call, TURNS);
	/* It restores all flags, that of single steps among them. */
	if (!counted) {
		printf("empty_at %.3f\n", at_target(empty_at));
		printf("direct_at %.3f\n", at_target(direct_at));
	}
	succeed(nopal_hook("target", hook));
	printf("hook %.3f\n", least(call, TURNS));
	succeed(nopal_hook("target", second_hook));
	printf("two_hooks %.3f\n", least(call, TURNS));
	return 0;
}
