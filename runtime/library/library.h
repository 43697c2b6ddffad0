/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * What the parts of libnopal offer each other: it connects a program's own functions to its markers and functions.
 */
#ifndef NOPAL_LIBRARY_H
#define NOPAL_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>

#include "nopal.h"
#include "nopal_probe.h"
#include "poke.h"

struct connection {
	nopal_probe *probe;
	void *data;
	bool general;           /* `probe` is a NOPAL_PROBE: it changes general registers only */
};

/* Constant once it is published. */
struct connections {
	size_t count;
	struct connection all[];
};

/* The target of `probes` of a struct nopal_marker, from the first connection on. Never freed. */
struct connected {
	struct nopal_description description;
	struct connections *connections;
};

/* ---- connect.c ---- */

/* Held while connections are changed. */
extern pthread_mutex_t library_lock;

/* Sets the error text of the calling thread. Returns `error`. */
__attribute__((format(printf, 2, 3))) int library_failed(int error, const char *text, ...);

/* ---- nearest.c ---- */

struct nearest {
	char name[128];         /* empty: none is near */
	unsigned distance;
};

/* Keeps the name if it is nearer to the wanted one than the current one. */
void nearest_look(struct nearest *nearest, const char *wanted, const char *name);

/* ---- notes.c ---- */

struct found_marker {
	struct nopal_marker *marker;
	struct nopal_description description;
};

struct found_place {
	uint64_t place;
	uint64_t on;
	uint32_t kind;
};

struct found {
	struct found_marker *markers;
	size_t marker_count;
	struct found_place *places;
	size_t place_count;
	struct nearest nearest;
	bool out_of_memory;
};

/* All markers and places of a name in the loaded files. Free them by found_free. */
void found_markers(const char *name, struct found *found);
void found_free(struct found *found);

/* Whether a function of the loaded files is a NOPAL_PROBE. */
bool is_general(nopal_probe *probe);

/* ---- text.c ---- */

/* Switches places on or off, unless they already are. Returns 0 or a negative errno. */
int text_switch(const struct found *found, bool on);

/* Performs the protocol IN_PLACE. Returns 0 or a negative errno. */
int text_poke(struct nopal_poke *pokes, uint32_t count);

/* Makes text writable until the next call or text_protect. Returns 0 or a negative errno. */
int text_unprotect(uint64_t address, uint64_t bytes);
void text_protect(void);

/* ---- functions.c ---- */

#define PLACE_BYTES 6           /* the longest single NOP that compilers emit at an entry */

struct functions {
	uint64_t *places;       /* ascending; freed by the caller */
	size_t count;
	size_t all;             /* all functions with NOPs at their entries */
	size_t named;           /* functions that match the pattern, with or without NOPs */
	struct nearest nearest;
	bool out_of_memory;
};

/* The entries that match a glob, in the loaded files; all, if it is 0. */
void found_functions(const char *pattern, struct functions *found);

/* Whether the memory of an entry is still mapped. */
bool function_is_loaded(uint64_t place);

/* ---- grace.c ---- */

/* A probe runs from grace_begin to grace_end, which takes the result of grace_begin. */
unsigned grace_begin(void);
void grace_end(unsigned token);

/* The number of nested probes of this thread. */
unsigned grace_depth(void);

/* Waits until all currently running probes have ended. */
void grace_wait(void);

/* ---- dispatch.S ---- */

/* Called by a connected marker, by the rules of struct nopal_marker. Calls library_dispatch, which may change general
 * registers only, then `record` if it is set. */
void library_called(void);
void library_dispatch(const struct nopal_marker *marker, const uint64_t *values);

/* Calls a probe that may change vector registers and the x87 unit, and preserves these. Changes general registers as C
 * does. */
void library_call_ordinary(void *data, const struct nopal_description *marker, const uint64_t *values, nopal_probe *probe);

/* ---- hooked.S, for hook.c ---- */

/* Called by the entry of a hooked function. */
void library_hooked(void);

/* Incremented atomically by any thread. */
extern uint64_t library_hooks_cut_off;

/* The parts of the vector state that there are, as in XCR0, and whether the processor tells which of them are in use.
 * Written before the first marker leads to a probe. */
#define LIBRARY_TELLS_USE 0x80000000u
extern uint32_t library_vector_state;

#endif
