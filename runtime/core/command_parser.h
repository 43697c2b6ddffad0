/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The control language: its grammar and its parser, for programs that control a process or a kernel by text. It keeps
 * no state and needs nothing of the rest of the core.
 */
#ifndef NOPAL_CONTROL_H
#define NOPAL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

enum nopal_command {
	NOPAL_COMMAND_NONE,             /* an empty line, or a comment */
	NOPAL_COMMAND_TRACE_NEW,        /* arguments: WHAT, NAME */
	NOPAL_COMMAND_TRACE_ON,         /* NAME */
	NOPAL_COMMAND_TRACE_OFF,        /* NAME */
	NOPAL_COMMAND_TRACE_COUNT,      /* NAME */
	NOPAL_COMMAND_TRACE_REMOVE,     /* NAME */
	NOPAL_COMMAND_SIZE,             /* NUMBER */
	NOPAL_COMMAND_WATCH,            /* IDS */
	NOPAL_COMMAND_WATCH_CHILDREN,   /* IDS */
	NOPAL_COMMAND_PROCESSORS,       /* IDS */
	NOPAL_COMMAND_PROCESSORS_ALL,
	NOPAL_COMMAND_START,
	NOPAL_COMMAND_STOP,
	NOPAL_COMMAND_RESET,
	NOPAL_COMMAND_QUERY,            /* WHAT */
	NOPAL_COMMAND_TESTTRACEIN,      /* WHAT */
	NOPAL_COMMAND_UNIFORM_ON,
	NOPAL_COMMAND_UNIFORM_OFF,
	NOPAL_COMMAND_BUDGET,           /* SHARE */
	NOPAL_COMMAND_BUDGET_OFF,
	NOPAL_COMMAND_ARGUMENTS_ON,
	NOPAL_COMMAND_ARGUMENTS_OFF,
	NOPAL_COMMAND_MARK_ON,          /* NAME */
	NOPAL_COMMAND_MARK_OFF,         /* NAME */
	NOPAL_COMMAND_PROBE,            /* WHERE, NAME, ARGS; present: enum nopal_probe_part */
	NOPAL_COMMAND_PROBE_ON,         /* NAME */
	NOPAL_COMMAND_PROBE_OFF,        /* NAME */
	NOPAL_COMMAND_PROBE_REMOVE,     /* NAME */
	NOPAL_COMMAND_SNAPSHOT,
	NOPAL_COMMAND_WHEN,             /* EVENT, COND, ACTION, NAME; present: enum nopal_when_part */
	NOPAL_COMMAND_WHEN_REMOVE,      /* NAME */
	NOPAL_COMMAND_SECTION_NEW,      /* FROM, TO, NAME */
	NOPAL_COMMAND_SECTION_REMOVE,   /* NAME */
	NOPAL_COMMAND_TRACER_ON,        /* NAME */
	NOPAL_COMMAND_TRACER_OFF,       /* NAME */
	NOPAL_COMMAND_TRACER_RESET,     /* NAME */
	NOPAL_COMMAND_TRACER_KEEP,      /* NAME, NUMBER */
	NOPAL_COMMAND_THRESHOLD,        /* NUMBER */
	NOPAL_COMMAND_LATENCY,          /* NAME */
	/* Commands that are only an ACTION. */
	NOPAL_COMMAND_MARK,
	NOPAL_COMMAND_COUNT,
	NOPAL_COMMAND_DETACH,
};

/* The optional parts that are present in a command: a bit each, in the order of its row. */
enum nopal_probe_part {
	NOPAL_PROBE_RETURN = 1,
	NOPAL_PROBE_BREAKPOINT = 2,
	NOPAL_PROBE_AUTO = 4,
	NOPAL_PROBE_NAMED = 8,
	NOPAL_PROBE_FETCHES = 16,
};

enum nopal_when_part {
	NOPAL_WHEN_IF = 1,
	NOPAL_WHEN_NAMED = 2,
};

/* Bytes of a line, from `begin` to before `end`. */
struct nopal_span {
	uint32_t begin;
	uint32_t end;
};

#define NOPAL_CONTROL_ARGUMENTS 4
#define NOPAL_CONTROL_EXPECTED 256

struct nopal_control {
	uint32_t command;       /* enum nopal_command */
	uint32_t present;       /* optional parts that are there */
	/* The arguments, in the order of the row; empty if absent. An argument of one word has no quotes; one of several words
	 * keeps them, for nopal_location_next and nopal_number_next. */
	struct nopal_span arguments[NOPAL_CONTROL_ARGUMENTS];
	/* If the line is not a command: the first word that does not match, empty at the end of the line, and the words
	 * expected there, such as "on, off, count or remove". */
	struct nopal_span bad;
	char expected[NOPAL_CONTROL_EXPECTED];
};

/* Parses one line of `length` bytes, without its line feed. False: it is not a command. */
bool nopal_control_parse(const char *line, uint32_t length, struct nopal_control *parsed);

/* Parses the ACTION of a trigger. */
bool nopal_action_parse(const char *line, struct nopal_span action, struct nopal_control *parsed);

/* The text of a row of the grammar, with its optional parts in brackets; 0 after the last row. */
const char *nopal_control_form(uint32_t row);

enum nopal_location_kind {
	NOPAL_LOCATION_ADDRESS,        /* first */
	NOPAL_LOCATION_RANGE,          /* first, and last: the address behind the range */
	NOPAL_LOCATION_IN_MODULE,      /* text: the module; first: an address in its file */
	NOPAL_LOCATION_RANGE_IN_MODULE,/* text, first, last */
	NOPAL_LOCATION_LINE,           /* text: the file; first: the line */
	NOPAL_LOCATION_NAMES,          /* text: GLOB[@MODULE] */
};

struct nopal_location {
	uint32_t kind;          /* enum nopal_location_kind */
	bool excluded;          /* written with a `!`: excluded from the others */
	struct nopal_span text;
	uint64_t first;
	uint64_t last;
};

/* Takes the first location from `rest`, at first the argument WHAT or WHERE of a parsed line. False at its end. */
bool nopal_location_next(const char *line, struct nopal_span *rest, struct nopal_location *location);

/* Takes the first number from `rest`, at first an argument NUMBER or IDS of a parsed line. False at its end. */
bool nopal_number_next(const char *line, struct nopal_span *rest, uint32_t *number);

#endif
