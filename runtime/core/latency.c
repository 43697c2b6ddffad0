/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * An open case stands in one of a few entries that its key leads to. An entry goes FREE -> CHANGING -> the key's mark
 * -> CHANGING -> FREE, each change to CHANGING by a compare-and-swap, after which the thread has the entry alone.
 * Nobody waits for an entry that is CHANGING; it is taken for another case's.
 */
#include "latency.h"

#include "port.h"

#define FREE 0u
#define CHANGING 1u
#define ENTRIES_OF_KEY 8
#define READER_TRIES 1000

static uint64_t key_of(const struct nopal_tracer *tracer, const struct nopal_event *event)
{
	switch (tracer->key) {
	case NOPAL_KEY_PROCESSOR:
		return event->processor;
	case NOPAL_KEY_THREAD:
		return event->thread;
	default:
		return event->value;
	}
}

static uint64_t mixed(uint64_t value)
{
	value *= 0x9e3779b97f4a7c15u;
	return value ^ value >> 32;
}

/* Distinguishes a key from others, and from FREE and CHANGING. Two keys have the same mark only if they differ in the
 * highest bit alone, or, for pairs of value and thread, with a probability of 1 in 2^63. */
static uint64_t mark_of(const struct nopal_tracer *tracer, const struct nopal_event *event, uint64_t key)
{
	if (tracer->key == NOPAL_KEY_VALUE_OF_THREAD)
		key = mixed(key) + mixed(event->thread + 1);
	return key * 2 + 2 > CHANGING ? key * 2 + 2 : 2;
}

static struct nopal_open_case *entry(struct nopal_latency *latency, uint64_t mark, uint32_t number)
{
	return &latency->open[(mixed(mark) + number) & (NOPAL_CASES_OPEN - 1)];
}

static bool change(struct nopal_open_case *open, uint64_t from)
{
	/* Acquire: we see the contents of the entry. */
	return __atomic_compare_exchange_n(&open->mark, &from, CHANGING, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void set_mark(struct nopal_open_case *open, uint64_t mark)
{
	/* Release pairs with the acquire of `change`. */
	__atomic_store_n(&open->mark, mark, __ATOMIC_RELEASE);
}

static void count(uint64_t *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

/* The entry with this mark, which becomes CHANGING; 0: there is none. */
static struct nopal_open_case *take(struct nopal_latency *latency, uint64_t mark, uint64_t as)
{
	for (uint32_t number = 0; number < ENTRIES_OF_KEY; number++) {
		struct nopal_open_case *open = entry(latency, as, number);
		if (__atomic_load_n(&open->mark, __ATOMIC_RELAXED) == mark && change(open, mark))
			return open;
	}
	return 0;
}

/* ---- The most urgent case: rank and mark of it in one word, 0 when none is open ---- */

#define RANK_SHIFT 48

static uint64_t urgency(uint32_t rank, uint64_t mark)
{
	return (uint64_t)rank << RANK_SHIFT | (mixed(mark) & (((uint64_t)1 << RANK_SHIFT) - 1)) | 1;
}

static void claim_urgency(struct nopal_latency *latency, uint32_t rank, uint64_t mark)
{
	uint64_t claim = urgency(rank, mark), seen = __atomic_load_n(&latency->most_urgent, __ATOMIC_RELAXED);
	while (!seen || rank < seen >> RANK_SHIFT)
		if (__atomic_compare_exchange_n(&latency->most_urgent, &seen, claim, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return;
}

/* Whether the case that ends was the most urgent one; then none is. */
static bool yield_urgency(struct nopal_latency *latency, uint64_t mark)
{
	uint64_t seen = __atomic_load_n(&latency->most_urgent, __ATOMIC_RELAXED);
	while (seen && urgency((uint32_t)(seen >> RANK_SHIFT), mark) == seen)
		if (__atomic_compare_exchange_n(&latency->most_urgent, &seen, 0, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return true;
	return false;
}

/* ---- Begin ---- */

static enum nopal_outcome begin(struct nopal_latency *latency, const struct nopal_event *event, uint64_t key,
				uint64_t mark)
{
	struct nopal_open_case *open = take(latency, mark, mark);
	bool goes_on = open && latency->tracer->nesting == NOPAL_NESTING_COUNTS;
	if (goes_on) {
		open->depth++;
		set_mark(open, mark);
		return NOPAL_OUTCOME_NONE;
	}
	if (open)
		count(&latency->never_ended);
	else
		open = take(latency, FREE, mark);
	if (!open) {
		count(&latency->begins_lost);
		return NOPAL_OUTCOME_NONE;
	}
	port_race_point("case begins");
	open->key = key;
	__atomic_store_n(&open->begin, event->clock, __ATOMIC_RELAXED);
	open->begin_position = event->position;
	open->begin_thread = event->thread;
	open->begin_processor = event->processor;
	open->depth = 1;
	if (latency->tracer->most_urgent)
		claim_urgency(latency, event->rank, mark);
	set_mark(open, mark);
	port_race_point("case begun");
	return NOPAL_OUTCOME_BEGUN;
}

/* ---- End ---- */

static uint64_t duration(const struct nopal_case *one)
{
	return one->end - one->begin;
}

static const struct nopal_kept_case *kept_case(const struct nopal_latency_own *own, uint64_t ticket)
{
	return &own->kept[ticket & (NOPAL_CASES_KEPT - 1)];
}

static bool is_worst(const struct nopal_latency *latency, const struct nopal_latency_own *own, uint64_t ticket,
		     const struct nopal_case *one)
{
	const struct nopal_case *worst = &kept_case(own, ticket)->worst;
	uint32_t age = __atomic_load_n(&latency->age, __ATOMIC_RELAXED);
	return !ticket || worst->age != age || duration(one) > duration(worst);
}

/* The ticket of a place that is being filled in. */
#define FILLING 1u
#define FIRST_TICKET 2u

/* Finds a place that is not being filled in and does not hold the worst case; 0: there is none. */
static struct nopal_kept_case *take_place(struct nopal_latency_own *own, uint64_t worst, uint64_t *ticket)
{
	for (uint32_t tries = 0; tries < 2 * NOPAL_CASES_KEPT; tries++) {
		*ticket = arch_add_local(&own->tickets, 1) + FIRST_TICKET;
		struct nopal_kept_case *kept = &own->kept[*ticket & (NOPAL_CASES_KEPT - 1)];
		uint64_t before = __atomic_load_n(&kept->ticket, __ATOMIC_RELAXED);
		port_race_point("ticket drawn");
		if (before != FILLING && !(worst && kept == kept_case(own, worst)) &&
		    arch_compare_exchange_local(&kept->ticket, before, FILLING))
			return kept;
	}
	return 0;
}

/*
 * 1. take a place by drawing a unique ticket
 * 2. fill in the case
 * 3. publish: compare-and-swap the ticket of the worst case
 *
 * A handler may interrupt between any two steps. If it has published a case, we begin again, if ours is worse. With
 * deeply nested handlers, all places may be in use; then the case is only in the histogram.
 */
static bool keep_worst(const struct nopal_latency *latency, struct nopal_latency_own *own, const struct nopal_case *one)
{
	for (;;) {
		uint64_t ticket, worst = __atomic_load_n(&own->worst, __ATOMIC_RELAXED);
		if (!is_worst(latency, own, worst, one))
			return false;
		struct nopal_kept_case *kept = take_place(own, worst, &ticket);
		if (!kept)
			return false;
		/* A reader that sees a part of the stores below also sees that the ticket has changed. */
		__atomic_thread_fence(__ATOMIC_RELEASE);
		port_race_point("place of the worst case taken");
		kept->worst = *one;
		port_race_point("worst case filled in");
		__atomic_store_n(&kept->ticket, ticket, __ATOMIC_RELEASE);
		if (arch_compare_exchange_local(&own->worst, worst, ticket))
			return true;
	}
}

static enum nopal_outcome end(struct nopal_latency *latency, struct nopal_latency_own *own,
			      const struct nopal_event *event, uint64_t mark, struct nopal_case *ended)
{
	struct nopal_open_case *open = take(latency, mark, mark);
	if (!open) {
		count(&latency->ends_alone);
		return NOPAL_OUTCOME_NONE;
	}
	port_race_point("case ends");
	if (--open->depth) {
		set_mark(open, mark);
		return NOPAL_OUTCOME_NONE;
	}
	*ended = (struct nopal_case){
		.key = open->key,
		.begin = open->begin,
		.end = event->clock,
		.begin_position = open->begin_position,
		.end_position = event->position,
		.begin_thread = open->begin_thread,
		.end_thread = event->thread,
		.begin_processor = open->begin_processor,
		.end_processor = event->processor,
		.age = __atomic_load_n(&latency->age, __ATOMIC_RELAXED),
	};
	bool counts = !latency->tracer->most_urgent || yield_urgency(latency, mark);
	set_mark(open, FREE);
	port_race_point("case ended");
	if (!counts)
		return NOPAL_OUTCOME_NONE;
	if (ended->end < ended->begin) {
		count(&latency->clock_went_back);
		return NOPAL_OUTCOME_NONE;
	}
	nopal_histogram_add(&own->histogram, duration(ended));
	bool worst = keep_worst(latency, own, ended);
	uint64_t threshold = __atomic_load_n(&latency->threshold, __ATOMIC_RELAXED);
	return (threshold ? duration(ended) > threshold : worst) ? NOPAL_OUTCOME_KEPT : NOPAL_OUTCOME_ENDED;
}

/* ---- From outside ---- */

enum nopal_outcome nopal_latency_event(struct nopal_latency *latency, struct nopal_latency_own *own,
				       const struct nopal_event *event, struct nopal_case *ended)
{
	const struct nopal_tracer *tracer = latency->tracer;
	uint32_t bit = (uint32_t)1 << (event->event & 31);
	if (!((tracer->begins | tracer->ends) & bit))
		return NOPAL_OUTCOME_NONE;
	uint64_t key = key_of(tracer, event), mark = mark_of(tracer, event, key);
	enum nopal_outcome outcome = NOPAL_OUTCOME_NONE;
	if (tracer->ends & bit)
		outcome = end(latency, own, event, mark, ended);
	if (tracer->begins & bit && begin(latency, event, key, mark) == NOPAL_OUTCOME_BEGUN && !outcome)
		outcome = NOPAL_OUTCOME_BEGUN;
	return outcome;
}

bool nopal_latency_worst(const struct nopal_latency *latency, const struct nopal_latency_own *own,
			 struct nopal_case *worst)
{
	/* A place that holds the worst case is not overwritten: we retry only while further cases become the worst. */
	for (uint32_t tries = 0; tries < READER_TRIES; tries++) {
		uint64_t ticket = __atomic_load_n(&own->worst, __ATOMIC_ACQUIRE);
		const struct nopal_kept_case *kept = kept_case(own, ticket);
		if (!ticket)
			return false;
		bool whole = __atomic_load_n(&kept->ticket, __ATOMIC_ACQUIRE) == ticket;
		*worst = kept->worst;
		/* Pairs with the fence of keep_worst. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (whole && __atomic_load_n(&kept->ticket, __ATOMIC_RELAXED) == ticket)
			return worst->age == __atomic_load_n(&latency->age, __ATOMIC_RELAXED);
	}
	return false;
}

void nopal_latency_reset(struct nopal_latency *latency)
{
	__atomic_add_fetch(&latency->age, 1, __ATOMIC_RELAXED);
}

static bool is_late(const struct nopal_latency *latency, const struct nopal_open_case *open, uint64_t clock)
{
	uint64_t begin = __atomic_load_n(&open->begin, __ATOMIC_RELAXED);
	return clock > begin && clock - begin > latency->timeout;
}

bool nopal_latency_expire(struct nopal_latency *latency, uint64_t clock, struct nopal_case *given_up)
{
	if (!latency->timeout)
		return false;
	for (uint32_t i = 0; i < NOPAL_CASES_OPEN; i++) {
		struct nopal_open_case *open = &latency->open[i];
		uint64_t mark = __atomic_load_n(&open->mark, __ATOMIC_RELAXED);
		/* Check before changing the entry: an end does not find it while it is CHANGING. */
		if (mark == FREE || mark == CHANGING || !is_late(latency, open, clock) || !change(open, mark))
			continue;
		if (!is_late(latency, open, clock)) {
			set_mark(open, mark);
			continue;
		}
		*given_up = (struct nopal_case){
			.key = open->key,
			.begin = open->begin,
			.begin_position = open->begin_position,
			.begin_thread = open->begin_thread,
			.begin_processor = open->begin_processor,
		};
		if (latency->tracer->most_urgent)
			yield_urgency(latency, mark);
		set_mark(open, FREE);
		count(&latency->never_ended);
		return true;
	}
	return false;
}
