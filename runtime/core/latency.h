/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Latency tracers: a begin event, an end event, and a key that pairs them. What happens between the two is a case; of
 * all cases a histogram is kept, and of the worst one where it began and ended in what was recorded.
 *
 * A tracer says which events begin and end a case, and where the key is in them; that is all in which `irqsoff` of a
 * kernel and `lockhold` of a program differ. Events may come from any thread or processor at once, and in handlers that
 * interrupt any instruction here. Nothing waits and nothing allocates.
 */
#ifndef NOPAL_LATENCY_H
#define NOPAL_LATENCY_H

#include <stdbool.h>

#include "histogram.h"

/* What the events of a tracer are paired by. */
enum nopal_key {
	NOPAL_KEY_PROCESSOR,    /* the processor on which they come: interrupts off and on */
	NOPAL_KEY_THREAD,       /* the thread: blocks signals, unblocks them */
	NOPAL_KEY_VALUE,        /* a value that they have: a lock's address, the thread that is woken, a request's number */
	NOPAL_KEY_VALUE_OF_THREAD, /* both: a lock that several threads may hold, or wait for */
};

/* What it means that a case begins which has begun. */
enum nopal_nesting {
	NOPAL_NESTING_COUNTS,   /* it ends when it has ended as often: a recursive lock; interrupts or preemption off */
	NOPAL_NESTING_AGAIN,    /* it begins anew: the one before never ended */
};

struct nopal_tracer {
	const char *name;
	uint32_t begins, ends;  /* sets of events, which the host numbers from 0 to 31; an event can be in both */
	enum nopal_key key;
	enum nopal_nesting nesting;
	bool most_urgent;       /* of the cases that are open, count only the one of the lowest rank */
};

struct nopal_event {
	uint32_t event;
	uint32_t processor;
	uint32_t thread;
	uint32_t rank;          /* how urgent it is: 0 most. For tracers of the most urgent case, below 1 << 16 */
	uint64_t value;
	uint64_t clock;
	uint64_t position;      /* where the next record goes, so what is recorded from here on stands from there on */
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
	uint64_t mark;          /* of its key; 0: free, 1: changing hands */
	uint64_t key, begin, begin_position;
	uint32_t begin_thread, begin_processor;
	uint32_t depth;
	uint32_t reserved;
};

/* What threads or processors share of a tracer that runs. Zeroed, then `tracer` and what is to be set are set. */
struct nopal_latency {
	const struct nopal_tracer *tracer;
	uint64_t threshold;     /* keep every case that lasts longer, not the worst only; 0: none */
	uint64_t timeout;       /* a case that is open for longer has no end; 0: never */
	uint32_t age;
	/* Told to the user: */
	uint64_t begins_lost;   /* too many were open */
	uint64_t ends_alone;    /* of what had not begun, or whose begin was lost; no fault where ends have other causes too */
	uint64_t never_ended;   /* given up by nopal_latency_expire, or begun anew */
	uint64_t clock_went_back;   /* cases that ended before they began; they count nowhere else */
	uint64_t most_urgent;
	struct nopal_open_case open[NOPAL_CASES_OPEN];
};

/* What each thread or processor has of it alone. Zeroed. */
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
	NOPAL_OUTCOME_NONE,     /* the event is none of this tracer's, or the case goes on */
	NOPAL_OUTCOME_BEGUN,
	NOPAL_OUTCOME_ENDED,
	NOPAL_OUTCOME_KEPT,     /* ended, and to be kept: the worst so far, or above the threshold */
};

/* Takes an event. Where a case has ended, *ended is that case. */
enum nopal_outcome nopal_latency_event(struct nopal_latency *latency, struct nopal_latency_own *own,
				       const struct nopal_event *event, struct nopal_case *ended);

/* The worst case of `own` since the last reset. False: there is none. */
bool nopal_latency_worst(const struct nopal_latency *latency, const struct nopal_latency_own *own,
			 struct nopal_case *worst);

/* Forgets the worst cases of all, as when 0 is written to tracing_max_latency. The histograms go on. */
void nopal_latency_reset(struct nopal_latency *latency);

/* Gives up a case that has been open for longer than the timeout, and says which: to be called until it returns
 * false. */
bool nopal_latency_expire(struct nopal_latency *latency, uint64_t clock, struct nopal_case *given_up);

#endif
