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
};

/* Never changed once it is published. */
struct connections {
	size_t count;
	struct connection all[];
};

/* What `probes` of a struct nopal_marker points to, from the first connection on. Never freed. */
struct connected {
	struct nopal_description description;
	struct connections *connections;
};

/* ---- connect.c ---- */

/* Held by who changes what is connected. */
extern pthread_mutex_t library_lock;

/* Says why the calling thread's last call failed. Returns `error`. */
__attribute__((format(printf, 2, 3))) int library_failed(int error, const char *text, ...);

/* ---- nearest.c ---- */

struct nearest {
	char name[128];         /* empty: none is near */
	unsigned distance;
};

/* Keeps the name if it is nearer to what is wanted than the one that is kept. */
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

/* All markers and places of a name in what is loaded. To be freed by found_free. */
void found_markers(const char *name, struct found *found);
void found_free(struct found *found);

/* ---- text.c ---- */

/* Switches places on or off, those that are the other way round. 0 or a negative errno. */
int text_switch(const struct found *found, bool on);

/* Does the order IN_PLACE. 0 or a negative errno. */
int text_poke(struct nopal_poke *pokes, uint32_t count);

/* Makes text writable until the next call or text_protect. 0 or a negative errno. */
int text_unprotect(uint64_t address, uint64_t bytes);
void text_protect(void);

/* ---- functions.c ---- */

#define PLACE_BYTES 6           /* the longest of what compilers leave at an entry, of one instruction */

struct functions {
	uint64_t *places;       /* ascending; to be freed */
	size_t count;
	size_t all;             /* functions with room at their entries, meant or not */
	size_t named;           /* functions that the pattern means, with such room or not */
	struct nearest nearest;
	bool out_of_memory;
};

/* The entries that a glob means, in what is loaded; all, if it is 0. */
void found_functions(const char *pattern, struct functions *found);

/* Whether the memory of an entry is there still. */
bool function_is_loaded(uint64_t place);

/* ---- grace.c ---- */

/* A probe runs from grace_begin to grace_end, which gets what the other has returned. */
unsigned grace_begin(void);
void grace_end(unsigned token);

/* Probes that this thread is in. */
unsigned grace_depth(void);

/* Waits until all probes have ended that run now. */
void grace_wait(void);

/* ---- dispatch.S ---- */

/* What a connected marker calls: by the rules of struct nopal_marker. Calls dispatch, then `record` if it is set. */
void library_called(void);
void library_dispatch(const struct nopal_marker *marker, const uint64_t *values);

/* ---- hooked.S, for hook.c ---- */

/* What the entry of a hooked function calls. */
void library_hooked(void);

/* Added to atomically by any thread. */
extern uint64_t library_hooks_cut_off;

/* What the processor's vector state takes, and its parts; 0: FXSAVE's. */
extern uint64_t library_vector_bytes;
extern uint32_t library_vector_parts;

#endif
