/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Functions of a program's own, connected to its markers (nopal.h) and to its functions while it runs. Link with
 * -lnopal.
 *
 *     static void on_rx(void *data, const struct nopal_description *marker, const uint64_t *values) { … }
 *     nopal_connect("net_rx", "len=%d device=%s", on_rx, &counter);
 *
 * In a kernel with nopal's module, modules connect functions to the markers of all modules by nopal_connect and
 * nopal_disconnect; the rest of this header is for programs.
 *
 * Functions return 0, or a negative errno; then nopal_error() says why. They may be called from any thread, but not
 * from a probe or a signal handler.
 */
#ifndef NOPAL_PROBE_H
#define NOPAL_PROBE_H

#include "nopal.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct nopal_description {
	const char *name;
	const char *format;
	const char *file;
	unsigned line;
};

/* Runs at a marker, in any thread, perhaps in a signal handler; in a kernel in any context, with preemption off. Values are words of 64 bits: integers widened by their
 * signedness, doubles by their bits, strings and pointers as addresses, NOPAL_BYTES as the address of a struct
 * nopal_bytes. */
typedef void nopal_probe(void *data, const struct nopal_description *marker, const uint64_t *values);

/* Begins a static probe that changes general registers only, so that the others need not be saved around it:
 *
 *     NOPAL_PROBE(on_rx)(void *data, const struct nopal_description *marker, const uint64_t *values) { … }
 *
 * The compiler refuses floating-point values in it, and uses no vector registers; functions that it calls must be
 * NOPAL_GENERAL, which is what `nopal list` checks in the finished file. In a kernel all code is NOPAL_GENERAL. */
#if defined(__KERNEL__) || defined(NOPAL_OFF)
#define NOPAL_GENERAL
#define NOPAL_PROBE(function) static void function
#else
#define NOPAL_GENERAL __attribute__((target("general-regs-only")))
#define NOPAL_GENERAL_FUNCTION(function_)                                                                              \
	NOPAL_GENERAL __attribute__((used)) static void function_##_changes_general_registers_only(void)               \
	{                                                                                                              \
		__asm__ volatile(NOPAL_NOTE(NOPAL_NOTE_PROBE, "%c[function] - .") : : [function] "i"(function_));      \
	}
#define NOPAL_PROBE(function_)                                                                                         \
	NOPAL_GENERAL static void function_(void *, const struct nopal_description *, const uint64_t *);               \
	NOPAL_GENERAL_FUNCTION(function_)                                                                              \
	NOPAL_GENERAL static void function_
#endif

/* Connects `probe` to all markers of this name. Their formats must be `format`; with 0, the probe interprets the values
 * itself. In programs, the connection also holds for libraries that are loaded later, or closed and loaded again,
 * before their own code runs. Their markers with another format are left out. The name may be `NAME@LIBRARY`, a glob of
 * file names: if no such library is loaded, the connection waits for it. A program that links libnopal.a must export
 * nopal_loaded to its libraries for that (-rdynamic).
 *   -ENOENT   no marker has this name
 *   -EINVAL   a marker's format is another one: nothing is connected
 *   -EEXIST   the probe is connected to it with the same data
 *   -ENOTSUP  the probe is no NOPAL_PROBE, and this processor has AVX-512 without AVX512BW
 *   -EACCES   text cannot be changed here */
int nopal_connect(const char *name, const char *format, nopal_probe *probe, void *data);

/* Disconnects it, by the name that it was connected by, and waits until it runs in no thread: then `data` may be freed.
 *   -ENOENT   it is not connected
 *   -EDEADLK  called from a probe */
int nopal_disconnect(const char *name, nopal_probe *probe, void *data);

#ifndef __KERNEL__

struct nopal_connected_probe {
	nopal_probe *probe;
	void *data;
};

struct nopal_listed_marker {
	struct nopal_description marker;        /* of one that waits: its name, and the format if one is demanded */
	const char *library;                    /* the file's name; empty: the program's. Of one that waits: what for */
	int on;                                 /* its values are worked out: somebody has switched it on */
	int recorded;                           /* by nopal */
	int waits;                              /* a connection to what no loaded file has */
	size_t count;                           /* of functions that are connected */
	const struct nopal_connected_probe *probes;
};

typedef void nopal_marker_visitor(void *data, const struct nopal_listed_marker *marker);

/* Calls `visitor` for each marker of the loaded files, and for each connection that waits. `visitor` may connect and
 * disconnect. The markers' descriptions point into their libraries.
 *   -EDEADLK  called from a probe */
int nopal_each_marker(nopal_marker_visitor *visitor, void *data);

/* Runs at the entry of a function: `ip` is the place there that was changed, `parent_ip` where the function returns to.
 * The function's arguments are preserved in any case. Make it NOPAL_NOTRACE. */
typedef void nopal_hook_function(unsigned long ip, unsigned long parent_ip);

/* Calls `hook` at the entry of each function whose name in the symbol table matches the glob `functions`, of all
 * functions if that is 0, that was compiled with room for it: -fpatchable-function-entry=5, or -pg -mfentry
 * -mrecord-mcount. One hook is called directly, several through a loop. Returns how many functions it is.
 *   -ENOENT   no function has such a name
 *   -ENOTSUP  none of those has room at its entry
 *   -EBUSY    they cannot be changed while other threads run
 *   -EEXIST   the hook is connected
 *   -EACCES   text cannot be changed here */
int nopal_hook(const char *functions, nopal_hook_function *hook);

/* Disconnects it, and waits until it runs in no thread.
 *   -ENOENT   it is not connected
 *   -EDEADLK  called from a hook */
int nopal_unhook(nopal_hook_function *hook);

/* A thread's registers before an instruction. Values that a probe writes there hold from then on, except for `ip` and
 * `sp`. */
struct nopal_registers {
	uint64_t r15, r14, r13, r12, r11, r10, r9, r8, di, si, bp, bx, dx, cx, ax;
	uint64_t flags;
	uint64_t ip;            /* the place */
	uint64_t sp;
};

/* Runs at an instruction, in any thread, perhaps in a signal handler. It must return normally. */
typedef void nopal_register_probe(void *data, struct nopal_registers *registers);

/* As NOPAL_PROBE:
 *
 *     NOPAL_REGISTER_PROBE(at_parse)(void *data, struct nopal_registers *registers) { … }
 */
#ifdef NOPAL_OFF
#define NOPAL_REGISTER_PROBE(function) static void function
#else
#define NOPAL_REGISTER_PROBE(function_)                                                                                \
	NOPAL_GENERAL static void function_(void *, struct nopal_registers *);                                         \
	NOPAL_GENERAL_FUNCTION(function_)                                                                              \
	NOPAL_GENERAL static void function_
#endif

/* Calls `probe` each time that an instruction of the program is about to run: a kprobe, for a program on itself. The place
 * is `NAME`, `NAME+0xOFFSET` or `0xADDRESS`, of a function in a symbol table. A NOP of 5 bytes at an even address, such as
 * -fpatchable-function-entry=5 leaves at entries, is changed while other threads pass it; other instructions only while
 * the process has one thread. In doubt the call is refused, and nopal_error() says why.
 *   -ENOENT   there is no such function
 *   -EINVAL   the place is inside an instruction, or behind the function's end; several functions have the name
 *   -ENOTSUP  the bytes that a jump needs cannot be displaced there
 *   -EBUSY    there are other threads, or another probe or a marker needs the same bytes
 *   -EEXIST   it is there with the same data
 *   -EACCES   text cannot be changed here
 *   -EDEADLK  called from a probe */
int nopal_probe_at(const char *place, nopal_register_probe *probe, void *data);

/* The same where a function returns, before its return instructions, all or none: `ax` is the result. A function that a
 * jump may leave is refused. Returns by exceptions and longjmp are not seen. */
int nopal_probe_return(const char *function, nopal_register_probe *probe, void *data);

/* Removes it from all places where it has this data, and waits until it runs in no thread. While there are other
 * threads, jumps stay except at NOPs, and lead back.
 *   -ENOENT   it is nowhere
 *   -EDEADLK  called from a probe */
int nopal_unprobe(nopal_register_probe *probe, void *data);

/* Before a function: compiles it without room for a hook. */
#ifdef __clang__
#define NOPAL_NOTRACE __attribute__((patchable_function_entry(0), no_instrument_function))
#else
#define NOPAL_NOTRACE __attribute__((patchable_function_entry(0, 0), no_instrument_function))
#endif

/* The error of this thread's last call. */
const char *nopal_error(void);

/* How often a probe was skipped because eight were already nested in its thread, or a hook because its thread was in
 * one. This happens to probes and hooks that run into their own markers or functions. */
uint64_t nopal_cut_off(void);

#endif

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
