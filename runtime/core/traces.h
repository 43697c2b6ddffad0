/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Traces and markers by name, and the commands that make and switch them, for a host that has no tool and no memory to
 * give: a small kernel, say. It keeps the wanted state; the host brings it about.
 */
#ifndef NOPAL_TRACES_H
#define NOPAL_TRACES_H

#include <stdbool.h>

#include "abi.h"

#define NOPAL_TRACES 16
#define NOPAL_TRACE_NAME_BYTES 32
#define NOPAL_TRACE_WHAT_BYTES 128

/* A function of the host. Its number in records is its place in the host's array, from 1 on. */
struct nopal_traced {
	const char *name;
	uint64_t address;
	uint64_t site;          /* its window */
	uint64_t thunk;         /* 0: it cannot be traced */
};

/* A slot without WHAT is free. A trace has a name; of markers, WHAT is the glob, and the last one that matches decides. */
struct nopal_trace {
	char name[NOPAL_TRACE_NAME_BYTES];
	char what[NOPAL_TRACE_WHAT_BYTES];
	bool on;
};

/* Changed by nopal_traces_command alone, which one thread at a time may call. */
struct nopal_traces {
	/* The host's, constant. */
	struct nopal_traced *functions;
	uint32_t function_count;
	bool (*is_on)(uint64_t site);
	/* Brings the sites into the wanted state. Returns how many it has left alone, since they hold foreign bytes. */
	uint32_t (*reconcile)(void);
	void (*say)(const char *text, uint32_t length);
	/* Prints comments that belong to the state, such as the numbers of markers. */
	void (*say_more)(void);
	const struct nopal_region *region;

	struct nopal_trace traces[NOPAL_TRACES];
	struct nopal_trace marks[NOPAL_TRACES];
	bool stopped;
};

bool nopal_traces_want(const struct nopal_traces *all, const struct nopal_traced *function);
bool nopal_traces_want_marker(const struct nopal_traces *all, const char *name);

/* Executes a line completely and prints "ok"; or prints "error: " and the reason, and changes nothing. An empty line
 * asks for the state: commands that make it again, and comments. */
void nopal_traces_command(struct nopal_traces *all, const char *line, uint32_t length);

/* Prints a number and the text behind it. */
void nopal_traces_say_number(const struct nopal_traces *all, uint64_t number, uint32_t base, const char *behind);
void nopal_traces_say(const struct nopal_traces *all, const char *text);

#endif
