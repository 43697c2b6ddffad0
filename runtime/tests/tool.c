/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * A tool that collects chunks as crates/record does, and checks their records.
 */
#include "world.h"

#define WORDS (NOPAL_CHUNK_BYTES / 8)
#define COLLECTED 256

struct collected {
	struct nopal_chunk_header header;
	uint64_t words[WORDS - NOPAL_CHUNK_HEADER_BYTES / 8];
	bool of_dead_thread;
};
_Static_assert(offsetof(struct collected, of_dead_thread) == NOPAL_CHUNK_BYTES, "laid out like a chunk");

static struct collected *collected[COLLECTED];
static uint32_t collected_count;
static uint32_t resyncs[8];

static uint32_t *state(uint32_t chunk)
{
	return &((uint32_t *)((char *)region + region->state_offset))[chunk];
}

static struct nopal_chunk_header *chunk_at(uint32_t chunk)
{
	return (struct nopal_chunk_header *)((char *)region + region->chunk_offset + (size_t)chunk * NOPAL_CHUNK_BYTES);
}

static uint32_t words_of(uint64_t word)
{
	switch (word >> 32 & 15) {
	case NOPAL_KIND_ENTRY_ARGS:
	case NOPAL_KIND_TAIL_ARGS:
	case NOPAL_KIND_ONLY_ARGS:
	case NOPAL_KIND_PENDING_ARGS:
		return 1 + NOPAL_ARGUMENTS;
	case NOPAL_KIND_EXIT_RESULT:
	case NOPAL_KIND_PENDING_RESULT:
		return 2;
	case NOPAL_KIND_EXTENDED:
		return NOPAL_RESYNC_BYTES / 8;
	default:
		return 1;
	}
}

/* Whether all that its thread has reserved is stored. */
static bool is_finished(const uint64_t *words, uint32_t count)
{
	for (uint32_t i = 0; i < count; i += words_of(words[i])) {
		uint32_t kind = words[i] >> 32 & 15;
		bool resync_unwritten = kind == NOPAL_KIND_EXTENDED && !words[i + 1];
		if (!kind || kind == NOPAL_KIND_PENDING_ARGS || kind == NOPAL_KIND_PENDING_RESULT || resync_unwritten)
			return false;
	}
	return true;
}

static void collect(uint32_t chunk, bool of_dead_thread)
{
	CHECK(collected_count < COLLECTED);
	if (!collected[collected_count])
		collected[collected_count] = malloc(sizeof **collected);
	struct collected *copy = collected[collected_count++];
	memcpy(copy, chunk_at(chunk), NOPAL_CHUNK_BYTES);
	copy->of_dead_thread = of_dead_thread;
	memset(chunk_at(chunk), 0, NOPAL_CHUNK_BYTES);
	__atomic_store_n(state(chunk), NOPAL_CHUNK_FREE, __ATOMIC_RELEASE);
	if (chunk < region->first_free)
		region->first_free = chunk;
	region->freed++;
}

void tool_collect(void)
{
	for (uint32_t i = 0; i < region->chunk_count; i++) {
		struct nopal_chunk_header *header = chunk_at(i);
		if (*state(i) != NOPAL_CHUNK_FULL)
			continue;
		uint32_t count = (header->content_bits / 8 - sizeof *header) / 8;
		if (!header->content_bits)
			collect(i, true);
		else if (is_finished((uint64_t *)(header + 1), count))
			collect(i, false);
	}
}

void tool_take_over(uint32_t thread)
{
	for (uint32_t i = 0; i < region->chunk_count; i++)
		if ((*state(i) & NOPAL_CHUNK_STATE_MASK) == NOPAL_CHUNK_OWNED && chunk_at(i)->thread == thread)
			collect(i, true);
}

uint32_t chunks_in_state(uint32_t wanted)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < region->chunk_count; i++)
		count += (*state(i) & NOPAL_CHUNK_STATE_MASK) == wanted;
	return count;
}

uint64_t lost_for(uint32_t reason)
{
	uint64_t lost = 0;
	for (uint32_t i = 0; i < NOPAL_LOST_COUNTERS; i++)
		lost += region->lost[i].lost[reason];
	return lost;
}

uint64_t lost_events(void)
{
	uint64_t for_reasons = 0;
	for (uint32_t reason = NOPAL_LOST_ALL + 1; reason < NOPAL_LOST_REASONS; reason++)
		for_reasons += lost_for(reason);
	CHECK(for_reasons == lost_for(NOPAL_LOST_ALL));
	return for_reasons;
}

uint32_t resyncs_found(uint32_t reason)
{
	return resyncs[reason];
}

static int compare(const void *a, const void *b)
{
	const struct nopal_chunk_header *x = &(*(struct collected *const *)a)->header;
	const struct nopal_chunk_header *y = &(*(struct collected *const *)b)->header;
	if (x->thread != y->thread)
		return x->thread < y->thread ? -1 : 1;
	if (x->thread_begin != y->thread_begin)
		return x->thread_begin < y->thread_begin ? -1 : 1;
	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* The slot of the thread's last event: the next one may not be on another stack, unless a resync says so in between.
 * Events of stacks without a mirror are not told apart. */
static uint64_t place;

/* The gaps that the thread's reader has been told of so far. */
static uint32_t gaps;

static void found(uint64_t word, uint64_t clock, uint32_t thread)
{
	uint32_t site = word >> 36 & (NOPAL_SITE_LIMIT - 1);
	CHECK(site && site <= event_count);
	struct event *event = &events[site];
	CHECK(!event->found++);
	event->found_kind = word >> 32 & 15;
	event->gaps = gaps;
	CHECK(event->thread == thread);
	CHECK((event->slot >> 4 & 0xff) == word >> 56);
	CHECK(!event->clock || event->clock == clock);
	if (event->found_kind != NOPAL_KIND_ONLY) {
		CHECK(event->slot >> 24 == place >> 24);
		place = event->slot;
	}
}

/* Returns the clock of the last record. */
static uint64_t read_chunk(const struct collected *chunk, uint64_t clock, uint32_t *holes)
{
	uint32_t count = WORDS - NOPAL_CHUNK_HEADER_BYTES / 8;
	CHECK(chunk->header.clock_begin >= clock);
	for (uint32_t i = 0; i < count;) {
		uint64_t word = chunk->words[i];
		uint32_t kind = word >> 32 & 15, length = words_of(word);
		CHECK(i + length <= count);
		if (!kind) {
			/* A reserved word, or the end. */
			uint32_t rest = i;
			while (rest < count && !(chunk->words[rest] >> 32))
				rest++;
			if (rest == count)
				break;
			*holes += 1;
			i++;
			continue;
		}
		if (kind == NOPAL_KIND_EXTENDED) {
			const struct nopal_resync *resync = (const void *)&chunk->words[i];
			if (resync->clock) {
				CHECK(resync->kind_and_event == (NOPAL_KIND_EXTENDED | NOPAL_EVENT_RESYNC << 4));
				CHECK(resync->clock >= clock);
				CHECK(resync->thread == chunk->header.thread && resync->process == chunk->header.process);
				CHECK((i == 0) == (resync->reason == NOPAL_RESYNC_CHUNK));
				resyncs[resync->reason]++;
				place = resync->slot;
				clock = resync->clock;
			} else {
				*holes += 1;
			}
		} else {
			CHECK(i > 0);
			uint64_t now = (clock & ~0xffffffffull) | (uint32_t)word;
			CHECK(now >= clock);
			if (kind == NOPAL_KIND_HOLE)
				gaps++;
			else
				found(word, now, chunk->header.thread);
			*holes += kind == NOPAL_KIND_PENDING_ARGS || kind == NOPAL_KIND_PENDING_RESULT;
			clock = now;
		}
		i += length;
	}
	return clock;
}

/* The gap lies between the last record before a lost event and the first event that began after it. */
static void gap_is_told(uint32_t lost)
{
	uint32_t before = 0, behind = UINT32_MAX;
	for (uint32_t site = 1; site <= event_count; site++) {
		const struct event *event = &events[site];
		if (!event->found || event->thread != events[lost].thread)
			continue;
		if (event->end && event->end < lost && event->gaps > before)
			before = event->gaps;
		if (site > events[lost].end && event->gaps < behind)
			behind = event->gaps;
	}
	CHECK(before < behind);
}

void world_end(uint32_t holes)
{
	tool_collect();
	for (uint32_t i = 0; i < region->chunk_count; i++)
		if (*state(i) != NOPAL_CHUNK_FREE)
			collect(i, true);
	static const char zeroes[NOPAL_CHUNK_BYTES];
	for (uint32_t i = 0; i < region->chunk_count; i++)
		CHECK(!memcmp(chunk_at(i), zeroes, NOPAL_CHUNK_BYTES));

	qsort(collected, collected_count, sizeof *collected, compare);
	memset(resyncs, 0, sizeof resyncs);
	uint64_t clock = 0;
	uint32_t seen_holes = 0;
	const struct nopal_chunk_header *before = 0;
	for (uint32_t i = 0; i < collected_count; i++) {
		const struct nopal_chunk_header *header = &collected[i]->header;
		bool same = before && before->thread == header->thread && before->thread_begin == header->thread_begin;
		if (header->thread) {
			CHECK(header->sequence == (same ? before->sequence + 1 : 0));
			CHECK(!same || header->discarded >= before->discarded);
			gaps = same ? gaps + (header->discarded > before->discarded) : header->discarded > 0;
		}
		clock = read_chunk(collected[i], same ? clock : 0, &seen_holes);
		before = header;
	}
	CHECK(seen_holes <= holes);

	uint64_t missing = 0;
	for (uint32_t site = 1; site <= event_count; site++) {
		CHECK(events[site].found || events[site].outcome != RECORDED);
		if (!events[site].found && events[site].outcome == NOT_WRAPPED) {
			missing++;
			gap_is_told(site);
		}
	}
	CHECK(missing == lost_events());
	collected_count = 0;
}
