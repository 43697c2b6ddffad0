/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The functions that the parts of libnopal offer each other. It connects a program's own functions to its markers and
 * functions.
 */
#ifndef NOPAL_LIBRARY_H
#define NOPAL_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>

#include "nopal.h"
#include "nopal_probe.h"
#include "poke_protocol.h"

struct connection {
	nopal_probe *probe;
	void *data;
	bool general;           /* `probe` is a NOPAL_PROBE: it changes general registers only */
};

/* Constant once it is published. */
struct connections {
	struct connections *next;       /* of those that are to be freed */
	size_t count;
	struct connection all[];
};

/* The target of `probes` of a struct nopal_marker, from the first connection on. Never freed. */
struct connected {
	struct nopal_description description;
	struct connections *connections;
};

/* ---- connect.c ---- */

/* Held by a thread that connects or disconnects, until nobody uses the old connections. Never taken while change_lock
 * is held, nor where a library begins: a probe that is waited for may be loading one. */
extern pthread_mutex_t library_lock;

/* Held while connections and text are changed; the holder waits for nothing. The caller may hold the loader's lock,
 * which is not taken under this one. */
void change_begin(void);
void change_end(void);

/* Connections are constant once they are published. A copy without the one at `leave`, if valid, and with `join`, if
 * given; 0: no memory. */
struct connections *connections_changed(const struct connections *old, size_t leave, const struct connection *join);
/* SIZE_MAX: it is not among them. */
size_t connections_find(const struct connections *connections, const struct connection *connection);
/* Publishes `new`, between change_begin and change_end. Threads may still use the old ones. */
void connections_replace(struct connections **connections, struct connections *new);
/* Frees these when no probe uses them. Under library_lock alone. */
void connections_free_retired(void);

/* Learns how to call ordinary functions, under library_lock. An error if the connection is to one and these cannot be
 * called. */
int connection_prepare(const struct connection *connection);

/* Begins a probe, which ends by grace_end; false if too many are nested in the thread. */
bool probe_begin(unsigned *token);

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
	const void *idle;
	const char *library;    /* the file's name; empty: the program's */
	struct nopal_description description;
};

struct found_place {
	uint64_t place;
	uint64_t on;
	uint32_t kind;
	const char *name, *file;
	uint32_t line;
};

struct found {
	struct found_marker *markers;
	size_t marker_count;
	struct found_place *places;
	size_t place_count;
	struct nearest nearest;
	bool out_of_memory;
	bool library_is_loaded;
};

/* All markers and places of a name in the loaded files whose names match a glob; 0 means any. Free them by found_free. */
void found_markers(const char *name, const char *library, struct found *found);
void found_free(struct found *found);

/* Calls a function while the loader keeps the list of loaded files locked. */
void while_loaded(void (*function)(void *data), void *data);

/* Whether a function of the loaded files is a NOPAL_PROBE. */
bool is_general(nopal_probe *probe);

/* ---- text.c ---- */

/* Whether a place is on. */
bool text_is_on(const struct found_place *place);

/* Switches places on or off, unless they already are. Returns 0 or a negative errno. */
int text_switch(const struct found *found, bool on);

/* Performs the protocol IN_PLACE. Returns 0 or a negative errno. */
int text_poke(struct nopal_poke *pokes, uint32_t count);

/* Makes text writable until the next call or text_protect. Returns 0 or a negative errno. */
int text_unprotect(uint64_t address, uint64_t bytes);
void text_protect(void);

/* Smaller than the reach of a jump, by more than a page and the length of a place. */
#define REACH 0x70000000ull

/* A writable page within reach of jumps from a place; 0: there is none. */
uint8_t *text_new_page(uint64_t place);

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

struct found_function {
	uint64_t address, end;
	uint8_t *bytes;         /* as in the file; freed by the caller */
	bool knows_all;         /* the file has symbols of all its functions */
	bool lands;             /* it has places where exceptions land */
	bool is_system;         /* it is the C library, the loader, or libnopal */
	unsigned count;         /* functions of the name at different addresses */
	struct nearest nearest;
};

/* The function of a name, if there is one only; without a name, that which has the address. */
bool find_function(const char *name, uint64_t address, struct found_function *found);

/* Calls `look` for each function of the file that has an address, with its bytes in the file. */
typedef void look_at_function(const uint8_t *bytes, uint64_t begin, uint64_t end, void *data);
void each_function_beside(uint64_t address, look_at_function *look, void *data);

/* Whether the process has one thread. */
bool process_is_alone(void);

/* Whether the memory of an entry is still mapped. */
bool function_is_loaded(uint64_t place);

/* ---- instructions.c ---- */

enum instruction_kind {
	INSTRUCTION_PLAIN,
	INSTRUCTION_JUMP,               /* to `target` */
	INSTRUCTION_CALL,
	INSTRUCTION_UNKNOWN_JUMP,
	INSTRUCTION_RETURN,
	INSTRUCTION_OTHER,              /* traps, or enters the kernel */
};

struct instruction {
	uint8_t length;
	uint8_t kind;
	bool direct;                    /* a jump or call to `target` */
	bool relative;                  /* memory at `target`, by a distance of four bytes at `distance_at` */
	uint8_t distance_at;
	int64_t distance;
	uint64_t target;
};

/* Decodes the instruction at an address, from `room` bytes. False if it is not known, or does not end within them. */
bool instruction_at(const uint8_t *bytes, uint64_t room, uint64_t address, struct instruction *found);

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

/* The parts of the vector state that the processor has, as in XCR0, and whether it tells which of them are in use.
 * Written before the first marker leads to a probe. */
#define LIBRARY_TELLS_USE 0x80000000u
extern uint32_t library_vector_state;

#endif
