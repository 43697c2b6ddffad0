/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Latency tracers: a begin event, an end event, and a key that pairs them. A case lasts from the begin to the end. All
 * cases are kept in a histogram; for the worst one, the places in the records where it began and ended are kept, too.
 *
 * A tracer says which events begin and end a case, and where the key is in them; that is all in which `irqsoff` of a
 * kernel and `lockhold` of a program differ. Events may come from any thread or processor at once, and in handlers that
 * interrupt any instruction here. Nothing waits and nothing allocates.
 */
#ifndef NOPAL_LATENCY_H
#define NOPAL_LATENCY_H

#include <stdbool.h>

#include "histogram.h"

/* The key that pairs the events of a tracer. */
enum nopal_key {
	NOPAL_KEY_PROCESSOR,    /* their processor: interrupts off and on */
	NOPAL_KEY_THREAD,       /* their thread: blocks signals, unblocks them */
	NOPAL_KEY_VALUE,        /* a value of theirs: a lock's address, the woken thread, a request's number */
	NOPAL_KEY_VALUE_OF_THREAD, /* both: a lock that several threads may hold, or wait for */
};

/* The meaning of a second begin of an open case. */
enum nopal_nesting {
	NOPAL_NESTING_COUNTS,   /* the case ends after as many ends: a recursive lock; interrupts or preemption off */
	NOPAL_NESTING_AGAIN,    /* a new case begins: the previous one never ended */
};

struct nopal_tracer {
	const char *name;
	uint32_t begins, ends;  /* sets of events, which the host numbers from 0 to 31; an event can be in both */
	enum nopal_key key;
	enum nopal_nesting nesting;
	bool most_urgent;       /* of the open cases, count only the one of the lowest rank */
};

struct nopal_event {
	uint32_t event;
	uint32_t processor;
	uint32_t thread;
	uint32_t rank;          /* how urgent it is: 0 most. For tracers of the most urgent case, below 1 << 16 */
	uint64_t value;
	uint64_t clock;
	uint64_t position;      /* the position of the next record, where the events of the case begin */
};

struct nopal_case {
	uint64_t key;           /* the value, or the number of thread or processor, as the tracer's key says */
	uint64_t begin, end;    /* clock */
	uint64_t begin_position, end_position;
	uint32_t begin_thread, end_thread;
	uint32_t begin_processor, end_processor;
	uint32_t age;           /* see nopal_latency_reset */
};

#define NOPAL_CASES_OPEN 1024   /* at once; a power of two */
#define NOPAL_CASES_KEPT 8      /* a power of two */

/* A case that has begun. */
struct nopal_open_case {
	uint64_t mark;          /* of its key; 0: free, 1: being changed */
	uint64_t key, begin, begin_position;
	uint32_t begin_thread, begin_processor;
	uint32_t depth;
	uint32_t reserved;
};

/* The state of a running tracer that threads or processors share. Zero it, then set `tracer` and the settings. */
struct nopal_latency {
	const struct nopal_tracer *tracer;
	uint64_t threshold;     /* keep every longer case, not only the worst; 0: none */
	uint64_t timeout;       /* a case that is open for longer has no end; 0: never */
	uint32_t age;
	/* Reported to the user: */
	uint64_t begins_lost;   /* begins while too many cases were open */
	uint64_t ends_alone;    /* ends without a begin, or whose begin was lost; no fault if ends have other causes too */
	uint64_t never_ended;   /* dropped by nopal_latency_expire, or begun again */
	uint64_t clock_went_back;   /* cases that ended before they began; they count nowhere else */
	uint64_t most_urgent;
	struct nopal_open_case open[NOPAL_CASES_OPEN];
};

/* The state of one thread or processor. Zero it first. */
struct nopal_latency_own {
	struct nopal_histogram histogram;       /* of all cases that ended here */
	uint64_t worst;                         /* its ticket; 0: none */
	uint64_t tickets;
	struct nopal_kept_case {
		uint64_t ticket;
		struct nopal_case worst;
	} kept[NOPAL_CASES_KEPT];
};

enum nopal_outcome {
	NOPAL_OUTCOME_NONE,     /* the event does not belong to this tracer, or the case continues */
	NOPAL_OUTCOME_BEGUN,
	NOPAL_OUTCOME_ENDED,
	NOPAL_OUTCOME_KEPT,     /* the case ended and must be kept: the worst so far, or above the threshold */
};

/* Takes an event. If a case has ended, stores it in *ended. */
enum nopal_outcome nopal_latency_event(struct nopal_latency *latency, struct nopal_latency_own *own,
				       const struct nopal_event *event, struct nopal_case *ended);

/* Loads the worst case of `own` since the last reset. False: there is none. */
bool nopal_latency_worst(const struct nopal_latency *latency, const struct nopal_latency_own *own,
			 struct nopal_case *worst);

/* Forgets all worst cases, as when 0 is written to tracing_max_latency. The histograms continue. */
void nopal_latency_reset(struct nopal_latency *latency);

/* Drops a case that has been open for longer than the timeout, and returns it; call it until it returns false. */
bool nopal_latency_expire(struct nopal_latency *latency, uint64_t clock, struct nopal_case *given_up);

#endif
