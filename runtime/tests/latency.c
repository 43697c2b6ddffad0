/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Latency tracers: pairs of events, their histogram and the worst of them.
 */
#include "latency.h"
#include "world.h"

enum { BEGIN, END, BOTH };

/* The test program has one thread. */
static struct nopal_tracer tracer;
static struct nopal_latency latency;
static struct nopal_latency_own own;
static struct nopal_case ended;
static uint64_t ends_seen, longest_seen;

static void tracer_begin(enum nopal_key key, enum nopal_nesting nesting)
{
	world_begin(1);
	tracer = (struct nopal_tracer){ .name = "test", .begins = 1 << BEGIN | 1 << BOTH, .ends = 1 << END | 1 << BOTH,
					.key = key, .nesting = nesting };
	memset(&latency, 0, sizeof latency);
	memset(&own, 0, sizeof own);
	latency.tracer = &tracer;
	ends_seen = longest_seen = 0;
}

static enum nopal_outcome happens(uint32_t event, uint32_t thread, uint64_t value, uint64_t clock)
{
	const struct nopal_event one = { .event = event, .thread = thread, .value = value, .clock = clock,
					 .position = 8 * clock };
	struct nopal_case now;
	enum nopal_outcome outcome = nopal_latency_event(&latency, &own, &one, &now);
	if (outcome >= NOPAL_OUTCOME_ENDED) {
		ended = now;
		ends_seen++;
		if (now.end - now.begin > longest_seen)
			longest_seen = now.end - now.begin;
	}
	return outcome;
}

static void buckets_hold_what_they_say(void)
{
	uint32_t before = 0;
	for (uint64_t value = 0; value < 100000; value++) {
		uint32_t bucket = nopal_histogram_bucket(value);
		CHECK(bucket == before || bucket == before + 1);
		CHECK(nopal_histogram_low(bucket) <= value && value <= nopal_histogram_high(bucket));
		before = bucket;
	}
	for (uint32_t bit = 0; bit < 64; bit++)
		for (uint64_t near = 0; near < 3; near++) {
			uint64_t value = ((uint64_t)1 << bit) + near - 1;
			uint32_t bucket = nopal_histogram_bucket(value);
			uint64_t low = nopal_histogram_low(bucket), high = nopal_histogram_high(bucket);
			CHECK(bucket < NOPAL_HISTOGRAM_BUCKETS && low <= value && value <= high);
			CHECK(high - low <= low / 32);
		}
	CHECK(nopal_histogram_bucket(~(uint64_t)0) == NOPAL_HISTOGRAM_BUCKETS - 1);
}

static void quantiles_are_those_of_all_threads(void)
{
	static struct nopal_histogram one, other, sum;
	for (uint64_t value = 1; value <= 1000; value++)
		nopal_histogram_add(value % 2 ? &one : &other, value);
	nopal_histogram_merge(&sum, &one);
	nopal_histogram_merge(&sum, &other);
	CHECK(nopal_histogram_count(&sum) == 1000);
	static const uint64_t shares[] = { 1, 500, 900, 999, 1000 };
	for (uint32_t i = 0; i < 5; i++) {
		uint64_t value = nopal_histogram_quantile(&sum, shares[i], 1000);
		CHECK(value >= shares[i] && value <= shares[i] + shares[i] / 32);
	}
	memset(&sum, 0, sizeof sum);
	CHECK(nopal_histogram_quantile(&sum, 1, 2) == 0);
}

static void cases_are_paired_by_their_keys(void)
{
	static const struct { enum nopal_key key; bool by_thread, by_value; } keys[] = {
		{ NOPAL_KEY_THREAD, true, false },
		{ NOPAL_KEY_VALUE, false, true },
		{ NOPAL_KEY_VALUE_OF_THREAD, true, true },
	};
	for (uint32_t i = 0; i < 3; i++) {
		tracer_begin(keys[i].key, NOPAL_NESTING_AGAIN);
		happens(BEGIN, 1, 0x1000, 10);
		CHECK((happens(END, 2, 0x1000, 11) == NOPAL_OUTCOME_NONE) == keys[i].by_thread);
		happens(BEGIN, 1, 0x1000, 20);
		CHECK((happens(END, 1, 0x2000, 21) == NOPAL_OUTCOME_NONE) == keys[i].by_value);
		happens(BEGIN, 1, 0x1000, 30);
		CHECK(happens(END, 1, 0x1000, 40) == NOPAL_OUTCOME_KEPT);
		CHECK(ended.begin == 30 && ended.end == 40 && ended.begin_position == 240 && ended.end_position == 320);
		CHECK(ended.key == (keys[i].by_value ? 0x1000u : 1u));
		CHECK(nopal_histogram_count(&own.histogram) == ends_seen);
	}
}

static void nested_cases_end_as_often_as_they_begin(void)
{
	tracer_begin(NOPAL_KEY_VALUE, NOPAL_NESTING_COUNTS);
	for (uint64_t i = 0; i < 3; i++)
		happens(BEGIN, 1, 7, 10 + i);
	for (uint64_t i = 0; i < 2; i++)
		CHECK(happens(END, 1, 7, 20 + i) == NOPAL_OUTCOME_NONE);
	CHECK(happens(END, 1, 7, 30) == NOPAL_OUTCOME_KEPT && ended.begin == 10);
	CHECK(happens(END, 1, 7, 31) == NOPAL_OUTCOME_NONE && latency.ends_alone == 1);
}

static void case_that_begins_anew_has_never_ended(void)
{
	tracer_begin(NOPAL_KEY_VALUE, NOPAL_NESTING_AGAIN);
	happens(BEGIN, 1, 7, 10);
	happens(BEGIN, 1, 7, 20);
	CHECK(latency.never_ended == 1);
	CHECK(happens(END, 1, 7, 25) == NOPAL_OUTCOME_KEPT && ended.begin == 20);
}

static void event_may_end_one_case_and_begin_the_next(void)
{
	tracer_begin(NOPAL_KEY_THREAD, NOPAL_NESTING_AGAIN);
	CHECK(happens(BOTH, 1, 0, 10) == NOPAL_OUTCOME_BEGUN);
	CHECK(happens(BOTH, 1, 0, 14) == NOPAL_OUTCOME_KEPT && ended.begin == 10);
	CHECK(happens(BOTH, 1, 0, 16) == NOPAL_OUTCOME_ENDED && ended.begin == 14);
}

static void lost_begins_are_counted(void)
{
	tracer_begin(NOPAL_KEY_VALUE, NOPAL_NESTING_AGAIN);
	uint64_t begun = 0;
	for (uint64_t value = 0; value < 2 * NOPAL_CASES_OPEN; value++)
		begun += happens(BEGIN, 1, value, 10) == NOPAL_OUTCOME_BEGUN;
	CHECK(begun > NOPAL_CASES_OPEN / 2 && begun <= NOPAL_CASES_OPEN);
	CHECK(begun + latency.begins_lost == 2 * NOPAL_CASES_OPEN);
	for (uint64_t value = 0; value < 2 * NOPAL_CASES_OPEN; value++)
		happens(END, 1, value, 20);
	CHECK(ends_seen == begun && latency.ends_alone == latency.begins_lost);
	/* All are free again. */
	CHECK(happens(BEGIN, 1, 0, 30) == NOPAL_OUTCOME_BEGUN);
}

static void begin_without_an_end_is_told(void)
{
	struct nopal_case late;
	tracer_begin(NOPAL_KEY_VALUE, NOPAL_NESTING_COUNTS);
	happens(BEGIN, 3, 7, 100);
	happens(BEGIN, 1, 8, 150);
	CHECK(!nopal_latency_expire(&latency, 100000, &late));
	latency.timeout = 50;
	CHECK(!nopal_latency_expire(&latency, 150, &late));
	CHECK(nopal_latency_expire(&latency, 151, &late));
	CHECK(late.key == 7 && late.begin == 100 && late.begin_thread == 3 && late.begin_position == 800);
	CHECK(!nopal_latency_expire(&latency, 151, &late) && latency.never_ended == 1);
	CHECK(happens(END, 3, 7, 160) == NOPAL_OUTCOME_NONE);
	CHECK(happens(END, 1, 8, 160) == NOPAL_OUTCOME_KEPT);
}

static void worst_case_is_kept_until_it_is_reset(void)
{
	struct nopal_case worst;
	tracer_begin(NOPAL_KEY_THREAD, NOPAL_NESTING_AGAIN);
	CHECK(!nopal_latency_worst(&latency, &own, &worst));
	static const uint64_t durations[] = { 5, 3, 9, 9, 2, 12, 1 };
	static const enum nopal_outcome outcomes[] = { NOPAL_OUTCOME_KEPT, NOPAL_OUTCOME_ENDED, NOPAL_OUTCOME_KEPT,
						       NOPAL_OUTCOME_ENDED, NOPAL_OUTCOME_ENDED, NOPAL_OUTCOME_KEPT,
						       NOPAL_OUTCOME_ENDED };
	for (uint32_t round = 0; round < 5; round++) {
		for (uint64_t i = 0; i < 7; i++) {
			happens(BEGIN, 1, 0, 100 * i);
			CHECK(happens(END, 1, 0, 100 * i + durations[i]) == outcomes[i]);
		}
		CHECK(nopal_latency_worst(&latency, &own, &worst));
		CHECK(worst.begin == 500 && worst.end == 512 && worst.begin_position == 4000);
		nopal_latency_reset(&latency);
		CHECK(!nopal_latency_worst(&latency, &own, &worst));
	}
	CHECK(nopal_histogram_count(&own.histogram) == 35);
}

static void every_case_above_the_threshold_is_kept(void)
{
	tracer_begin(NOPAL_KEY_THREAD, NOPAL_NESTING_AGAIN);
	latency.threshold = 10;
	static const uint64_t durations[] = { 11, 10, 30, 12 };
	for (uint64_t i = 0; i < 4; i++) {
		happens(BEGIN, 1, 0, 100 * i);
		CHECK((happens(END, 1, 0, 100 * i + durations[i]) == NOPAL_OUTCOME_KEPT) == (durations[i] > 10));
	}
}

static void clock_that_goes_back_makes_no_case(void)
{
	struct nopal_case worst;
	tracer_begin(NOPAL_KEY_THREAD, NOPAL_NESTING_AGAIN);
	happens(BEGIN, 1, 0, 100);
	CHECK(happens(END, 1, 0, 99) == NOPAL_OUTCOME_NONE && latency.clock_went_back == 1);
	CHECK(nopal_histogram_count(&own.histogram) == 0 && !nopal_latency_worst(&latency, &own, &worst));
}

/* ---- Handlers at every pair of race points ---- */

static uint64_t handled;

/* Begins and ends cases, of its own key and of the interrupted one. Each is worse than those before, and there are more
 * than places for the worst. */
static void cases_in_a_handler(void)
{
	uint64_t number = ++handled, clock = 1000 * number;
	struct nopal_case worst;
	/* A published case can be read at any point. */
	CHECK(nopal_latency_worst(&latency, &own, &worst) == !!own.worst);
	happens(BEGIN, 1, 100 + number, clock);
	for (uint64_t i = 0; i < NOPAL_CASES_KEPT; i++) {
		happens(BEGIN, 1, 7, clock += 100);
		happens(END, 1, 7, clock += 20 * number + i);
	}
	happens(END, 1, 100 + number, clock);
}

static void cases_under_way(void)
{
	tracer_begin(NOPAL_KEY_VALUE, NOPAL_NESTING_COUNTS);
	handled = 0;
	arm();
	happens(BEGIN, 1, 7, 10);
	happens(END, 1, 7, 40);
	happens(BEGIN, 1, 8, 50);
	happens(END, 1, 8, 100);
}

static void all_cases_are_there(void)
{
	struct nopal_case worst;
	CHECK(ends_seen == nopal_histogram_count(&own.histogram));
	CHECK(nopal_latency_worst(&latency, &own, &worst) && worst.end - worst.begin == longest_seen);
	CHECK(!latency.begins_lost && !latency.ends_alone && !latency.never_ended && !latency.clock_went_back);
	for (uint32_t i = 0; i < NOPAL_CASES_OPEN; i++)
		CHECK(!latency.open[i].mark);
}

static void handlers_may_come_at_every_point(void)
{
	at_all_race_points(cases_under_way, cases_in_a_handler, all_cases_are_there);
}

const struct test latency_tests[] = {
	{ "buckets_hold_what_they_say", buckets_hold_what_they_say },
	{ "quantiles_are_those_of_all_threads", quantiles_are_those_of_all_threads },
	{ "cases_are_paired_by_their_keys", cases_are_paired_by_their_keys },
	{ "nested_cases_end_as_often_as_they_begin", nested_cases_end_as_often_as_they_begin },
	{ "case_that_begins_anew_has_never_ended", case_that_begins_anew_has_never_ended },
	{ "event_may_end_one_case_and_begin_the_next", event_may_end_one_case_and_begin_the_next },
	{ "lost_begins_are_counted", lost_begins_are_counted },
	{ "begin_without_an_end_is_told", begin_without_an_end_is_told },
	{ "worst_case_is_kept_until_it_is_reset", worst_case_is_kept_until_it_is_reset },
	{ "every_case_above_the_threshold_is_kept", every_case_above_the_threshold_is_kept },
	{ "clock_that_goes_back_makes_no_case", clock_that_goes_back_makes_no_case },
	{ "handlers_may_come_at_every_point_of_a_case", handlers_may_come_at_every_point },
	{ 0, 0 },
};
