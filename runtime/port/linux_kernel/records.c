// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Records of functions, read in the kernel: as text for /dev/nopal_trace, counted for the state, and those of a latency
 * tracer's worst case. A process that maps the region may have written anything there, so nothing in it is
 * believed.
 *
 * A chunk is read in place, up to the first record that is reserved and not stored. The tool's field packet_bits of its
 * header says how much of it has been read. A chunk that is full and read is zeroed and free, as the tool leaves it.
 */
#include <linux/sort.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include "module.h"
#include "records.h"

#define HEADER_WORDS (NOPAL_CHUNK_HEADER_BYTES / 8)
#define CHUNK_WORDS (NOPAL_CHUNK_BYTES / 8)
/* Letter, seven numbers of 16 digits with a blank each, the end of the line. */
#define LINE_BYTES (1 + 7 * 17 + 1)
#define TRIM_EVERY (HZ / 50)
/* A part of the chunks is kept free meanwhile. */
#define FREE_PART 4
#define DROPPED_AT_ONCE 64

/* The next chunk of a processor. */
struct stream {
	struct nopal_chunk_header *chunk;       /* 0: there is none */
	uint32_t index;
	bool is_full;                           /* it was, before its records were looked at */
	struct nopal_reading reading;
	const uint64_t *given;                  /* behind the last record that was given out, or passed over */
	struct nopal_record next;
	bool has_next;
};

/* The records given out since the counts began, and those lost before. Written by the holder of the region. */
static struct nopal_counts given;
static uint64_t lost_before;

/* ---- the records of a chunk ---- */

/* The length of a record with these first words, of which there are `room`; 0: it is not known, or not stored yet. */
static uint32_t words_of(const uint64_t *words, size_t room)
{
	uint32_t upper = words[0] >> 32, event = upper >> 4, length = event >> NOPAL_EVENT_WORDS_SHIFT;
	switch (upper & 15) {
	case NOPAL_KIND_ENTRY_ARGS:
	case NOPAL_KIND_TAIL_ARGS:
	case NOPAL_KIND_ONLY_ARGS:
	case NOPAL_KIND_PENDING_ARGS:
		return 1 + NOPAL_ARGUMENTS;
	case NOPAL_KIND_EXIT_RESULT:
	case NOPAL_KIND_PENDING_RESULT:
		return 2;
	case NOPAL_KIND_EXTENDED:
		/* The clock is stored last. */
		if (room < 3 || !smp_load_acquire(&words[1]))
			return 0;
		if (event == NOPAL_EVENT_RESYNC)
			return NOPAL_RESYNC_BYTES / 8;
		if (length == NOPAL_EVENT_VARIABLE)
			return 2 + min_t(uint32_t, (uint32_t)words[2], CHUNK_WORDS);
		return length ? 1 + length : 0;
	default:
		return 1;
	}
}

bool nopal_record_next(struct nopal_reading *reading, struct nopal_record *record)
{
	while (reading->at < reading->end) {
		const uint64_t *words = reading->at;
		size_t room = reading->end - words;
		/* The lower half is stored first: acquire, so what was stored before the upper half is seen. */
		uint64_t word = smp_load_acquire(words);
		uint32_t upper = word >> 32, kind = upper & 15, count = upper ? words_of(words, room) : 0;
		bool is_pending = kind == NOPAL_KIND_PENDING_ARGS || kind == NOPAL_KIND_PENDING_RESULT;
		if (reading->is_copy && !upper) {
			reading->at++;
			continue;
		}
		if (!count || count > room || (is_pending && !reading->is_copy))
			return false;
		reading->at += count;
		if (kind == NOPAL_KIND_EXTENDED) {
			const struct nopal_resync *resync = (const struct nopal_resync *)words;
			if (upper >> 4 == NOPAL_EVENT_RESYNC) {
				reading->clock_high = resync->clock >> 32;
				reading->thread = resync->thread;
			} else if (reading->with_events) {
				*record = (struct nopal_record){
					.clock = words[1],
					.thread = reading->thread,
					.event = upper >> 4,
					.words = words,
					.count = count,
				};
				return true;
			}
			continue;
		}
		if (kind == NOPAL_KIND_HOLE)
			continue;
		*record = (struct nopal_record){
			.clock = (uint64_t)reading->clock_high << 32 | (uint32_t)word,
			.site = upper >> 4 & (NOPAL_SITE_LIMIT - 1),
			.tag = upper >> 24,
			.thread = reading->thread,
			.has_result = kind == NOPAL_KIND_EXIT_RESULT,
			.is_exit = kind == NOPAL_KIND_EXIT || kind == NOPAL_KIND_EXIT_RESULT || kind == NOPAL_KIND_PENDING_RESULT,
		};
		for (uint32_t i = 1; i < count && !is_pending; i++)
			record->values[i - 1] = words[i];
		return true;
	}
	return false;
}

uint32_t nopal_records_copy(void *to)
{
	uint64_t position = nopal_context_position();
	if (!position)
		return 0;
	const void *from = nopal_chunk_of(position);
	uint32_t bytes = position - (uint64_t)from;
	unsigned long words = bytes / 8;
	/* By an instruction, since memcpy could be traced. */
	asm volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
	return bytes;
}

struct nopal_reading nopal_reading_of_copy(const void *chunk, uint32_t bytes)
{
	const struct nopal_chunk_header *header = chunk;
	return (struct nopal_reading){
		.at = (const uint64_t *)chunk + HEADER_WORDS,
		.end = (const uint64_t *)chunk + max_t(uint32_t, bytes / 8, HEADER_WORDS),
		.clock_high = header->clock_begin >> 32,
		.is_copy = true,
	};
}

const struct nopal_function *nopal_record_function(const struct nopal_record *record)
{
	return record->site && record->site <= nopal_function_count ? &nopal_functions[record->site - 1] : 0;
}

/* While `uniform` is on, functions that nobody has asked for record, too. */
static bool is_asked_for(const struct nopal_record *record)
{
	const struct nopal_function *function = nopal_record_function(record);
	return function && (function->wanted || !nopal_functions_are_uniform());
}

/* ---- chunks, while the region is held ---- */

static uint32_t *states(void)
{
	return (uint32_t *)((char *)nopal_kernel.region + nopal_kernel.state_offset);
}

static struct nopal_chunk_header *chunk_at(uint32_t index)
{
	return (struct nopal_chunk_header *)((char *)nopal_kernel.region + nopal_kernel.chunk_offset +
					     (uint64_t)index * NOPAL_CHUNK_BYTES);
}

static uint32_t state_of(uint32_t index)
{
	/* Acquire pairs with the release by which the chunk was handed over. */
	return smp_load_acquire(&states()[index]) & NOPAL_CHUNK_STATE_MASK;
}

static void begin_reading(struct stream *stream, uint32_t index)
{
	stream->index = index;
	stream->is_full = state_of(index) == NOPAL_CHUNK_FULL;
	stream->chunk = chunk_at(index);
	uint64_t *words = (uint64_t *)stream->chunk, read = stream->chunk->packet_bits / 64;
	uint64_t end = stream->is_full ? stream->chunk->content_bits / 64 : CHUNK_WORDS;
	end = clamp_t(uint64_t, end, HEADER_WORDS, CHUNK_WORDS);
	stream->reading = (struct nopal_reading){
		.at = words + HEADER_WORDS,
		.end = words + end,
		.clock_high = stream->chunk->clock_begin >> 32,
	};
	stream->has_next = false;
	/* Reads from the begin of the chunk, so that the task and the clock are known. */
	stream->given = words + clamp_t(uint64_t, read, HEADER_WORDS, end);
}

/* The next record that has not been given out. */
static bool look(struct stream *stream)
{
	while (!stream->has_next && stream->chunk && nopal_record_next(&stream->reading, &stream->next)) {
		bool is_new = stream->reading.at > stream->given;
		if (is_new && is_asked_for(&stream->next))
			stream->has_next = true;
		else if (is_new)
			stream->given = stream->reading.at;
	}
	/* Behind it are none but events of markers. */
	if (!stream->has_next && stream->chunk)
		stream->given = max(stream->given, stream->reading.at);
	return stream->has_next;
}

static bool is_read(const struct stream *stream)
{
	return stream->is_full && !stream->has_next && stream->reading.at == stream->reading.end;
}

static void end_reading(struct stream *stream)
{
	struct nopal_region *region = nopal_kernel.region;
	if (!stream->chunk)
		return;
	if (!is_read(stream)) {
		stream->chunk->packet_bits = (stream->given - (uint64_t *)stream->chunk) * 64;
		return;
	}
	memset(stream->chunk, 0, NOPAL_CHUNK_BYTES);
	/* Release pairs with the acquire of the processor that takes it, which finds zeroes. */
	smp_store_release(&states()[stream->index], NOPAL_CHUNK_FREE);
	WRITE_ONCE(region->first_free, stream->index);
	__atomic_add_fetch(&region->freed, 1, __ATOMIC_RELEASE);
}

/* Gives each processor's stream that has no chunk its oldest one. */
static void find_chunks(struct stream *streams)
{
	for (uint32_t index = 0; index < nopal_kernel.chunk_limit; index++) {
		struct nopal_chunk_header *chunk = chunk_at(index);
		if (state_of(index) == NOPAL_CHUNK_FREE || !READ_ONCE(chunk->thread_begin))
			continue;
		uint32_t processor = chunk->thread_begin & 0xffff;
		struct stream *stream = processor < nr_cpu_ids ? &streams[processor] : 0;
		if (stream && !stream->given && (!stream->chunk || chunk->sequence < stream->chunk->sequence)) {
			stream->chunk = chunk;
			stream->index = index;
		}
	}
	for (uint32_t processor = 0; processor < nr_cpu_ids; processor++)
		if (streams[processor].chunk && !streams[processor].given)
			begin_reading(&streams[processor], streams[processor].index);
}

/* The stream with the earliest record; 0: there is none. */
static struct stream *earliest(struct stream *streams)
{
	for (;;) {
		struct stream *first = 0;
		bool goes_on = false;
		for (uint32_t processor = 0; processor < nr_cpu_ids; processor++) {
			struct stream *stream = &streams[processor];
			if (look(stream)) {
				if (!first || stream->next.clock < first->next.clock)
					first = stream;
			} else if (stream->chunk && is_read(stream)) {
				end_reading(stream);
				*stream = (struct stream){ 0 };
				goes_on = true;
			}
		}
		if (!goes_on)
			return first;
		find_chunks(streams);
	}
}

static void count_record(struct nopal_counts *counts, const struct nopal_record *record)
{
	counts->records++;
	counts->entries += !record->is_exit;
}

/* Gives records to `give` in order of time, until there are no more, or it takes no more. Sleeps. */
static int read_all(bool (*give)(void *to, const struct nopal_record *record), void *to)
{
	struct stream *streams = kvcalloc(nr_cpu_ids, sizeof *streams, GFP_KERNEL), *stream;
	if (!streams)
		return -ENOMEM;
	find_chunks(streams);
	while ((stream = earliest(streams)) && give(to, &stream->next)) {
		stream->has_next = false;
		stream->given = stream->reading.at;
		count_record(&given, &stream->next);
		cond_resched();
	}
	for (uint32_t processor = 0; processor < nr_cpu_ids; processor++)
		end_reading(&streams[processor]);
	kvfree(streams);
	return 0;
}

/* ---- /dev/nopal_trace ---- */

struct text {
	char *bytes;
	size_t used, room;
};

/* A record names the function, not the exit: the address is known if the function has only one by which the record can
 * have been made. Results are recorded at returns alone. 0: it is not known. */
static unsigned long exit_address(const struct nopal_function *function, const struct nopal_record *record)
{
	unsigned long address = 0;
	for (uint32_t number = function->first_exit; number < function->first_exit + function->exits; number++) {
		const struct nopal_exit *exit = &nopal_exits[number];
		if (record->has_result && exit->kind != NOPAL_EXIT_RETURN)
			continue;
		if (address)
			return 0;
		address = exit->address;
	}
	return address;
}

static bool write_line(void *to, const struct nopal_record *record)
{
	struct text *text = to;
	if (text->room - text->used <= LINE_BYTES)
		return false;
	const struct nopal_function *function = nopal_record_function(record);
	unsigned long address = record->is_exit ? exit_address(function, record) : function->address;
	char place[17] = "-";
	if (address)
		scnprintf(place, sizeof place, "%016lx", address);
	text->used += scnprintf(text->bytes + text->used, text->room - text->used,
				"%c %s %016llx %016x %016llx %016llx %016llx %016llx\n", record->is_exit ? 'X' : 'E', place,
				record->clock, record->thread, record->values[0], record->values[1], record->values[2],
				record->values[3]);
	return true;
}

ssize_t nopal_records_text(char *bytes, size_t room)
{
	struct text text = { bytes, 0, room };
	int failed = nopal_context_hold();
	if (failed)
		return failed;
	failed = read_all(write_line, &text);
	nopal_context_let_go();
	return failed ? failed : text.used;
}

/* ---- the state ---- */

static void count_chunk(struct stream *stream, struct nopal_counts *counts)
{
	while (look(stream)) {
		stream->has_next = false;
		count_record(counts, &stream->next);
	}
}

int nopal_records_count(struct nopal_counts *all, uint64_t *queued)
{
	int failed = nopal_context_hold();
	if (failed)
		return failed;
	*all = given;
	all->lost = nopal_context_lost() - lost_before;
	for (uint32_t index = 0; index < nopal_kernel.chunk_limit; index++) {
		struct stream stream;
		if (state_of(index) == NOPAL_CHUNK_FREE)
			continue;
		begin_reading(&stream, index);
		count_chunk(&stream, all);
		cond_resched();
	}
	*queued = all->records - given.records;
	nopal_context_let_go();
	return 0;
}

static int by_clock(const void *one, const void *other)
{
	const struct nopal_seen *first = one, *second = other;
	return first->clock < second->clock ? -1 : first->clock > second->clock;
}

/* Puts the first of these in its place: in a heap, each is no later than the two below it. */
static void sink(struct nopal_seen *heap, uint32_t count)
{
	for (uint32_t at = 0, child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && heap[child + 1].clock < heap[child].clock)
			child++;
		if (heap[at].clock <= heap[child].clock)
			return;
		swap(heap[at], heap[child]);
	}
}

/* When there is no room, the earliest one goes. Sorted as they are then, the events are a heap. */
static void keep(struct nopal_newest *newest, const struct nopal_seen *seen)
{
	newest->all++;
	if (newest->count < newest->room) {
		newest->events[newest->count++] = *seen;
		if (newest->count == newest->room)
			sort(newest->events, newest->count, sizeof *newest->events, by_clock, 0);
	} else if (newest->count && seen->clock > newest->events[0].clock) {
		newest->events[0] = *seen;
		sink(newest->events, newest->count);
	}
}

void nopal_records_newest(struct nopal_newest *newest)
{
	for (uint32_t index = 0; index < nopal_kernel.chunk_limit; index++) {
		struct stream stream;
		struct nopal_record record;
		if (state_of(index) == NOPAL_CHUNK_FREE || !READ_ONCE(chunk_at(index)->thread_begin))
			continue;
		begin_reading(&stream, index);
		stream.reading.with_events = true;
		while (nopal_record_next(&stream.reading, &record)) {
			struct nopal_seen seen = {
				.clock = record.clock,
				.words = record.words,
				.count = record.count,
				.event = record.event,
				.thread = record.thread,
				.processor = stream.chunk->thread_begin & 0xffff,
			};
			if (record.event && stream.reading.at > stream.given && newest->is_shown(&seen))
				keep(newest, &seen);
		}
		cond_resched();
	}
	sort(newest->events, newest->count, sizeof *newest->events, by_clock, 0);
}

static bool drop(void *unused, const struct nopal_record *record)
{
	return true;
}

void nopal_records_reset(void)
{
	if (nopal_context_hold())
		return;
	read_all(drop, 0);
	given = (struct nopal_counts){ 0 };
	lost_before = nopal_context_lost();
	nopal_context_let_go();
}

/* ---- while a latency tracer is on, the buffer holds the newest records ---- */

static void trim(struct work_struct *unused);
static DECLARE_DELAYED_WORK(trimming, trim);

static uint32_t free_chunks(void)
{
	uint32_t count = 0;
	for (uint32_t index = 0; index < nopal_kernel.chunk_limit; index++)
		count += state_of(index) == NOPAL_CHUNK_FREE;
	return count;
}

/* Whether the next record of a chunk is not stored yet: its writer is interrupted, or asleep. */
static bool is_unfinished(uint32_t index)
{
	struct stream stream;
	begin_reading(&stream, index);
	stream.reading.at = stream.given;
	return stream.given < stream.reading.end && !nopal_record_next(&stream.reading, &stream.next) &&
	       stream.reading.at == stream.given;
}

/* The oldest full chunk that can be read on; chunk_limit: there is none. */
static uint32_t oldest_chunk(void)
{
	uint32_t oldest = nopal_kernel.chunk_limit;
	for (uint32_t index = 0; index < nopal_kernel.chunk_limit; index++)
		if (state_of(index) == NOPAL_CHUNK_FULL &&
		    (oldest == nopal_kernel.chunk_limit || chunk_at(index)->clock_begin < chunk_at(oldest)->clock_begin) &&
		    !is_unfinished(index))
			oldest = index;
	return oldest;
}

/* Drops the records of a chunk, up to the first one that is not stored yet. Returns whether it was free then. */
static bool drop_chunk(uint32_t index)
{
	struct stream stream;
	struct nopal_counts dropped = { 0 };
	begin_reading(&stream, index);
	count_chunk(&stream, &dropped);
	stream.given = stream.reading.at;
	bool will_be_free = is_read(&stream);
	end_reading(&stream);
	given.records += dropped.records;
	given.entries += dropped.entries;
	cond_resched();
	return will_be_free;
}

static void trim(struct work_struct *unused)
{
	/* The holder of the lock may be waiting for this work to end. */
	bool may = mutex_trylock(&nopal_lock);
	if (may && !nopal_context_hold()) {
		uint32_t free = free_chunks(), wanted = max(nopal_kernel.chunk_limit / FREE_PART, num_possible_cpus()), oldest;
		for (uint32_t read = 0; read < DROPPED_AT_ONCE && free < wanted; read++) {
			oldest = oldest_chunk();
			if (oldest == nopal_kernel.chunk_limit)
				break;
			free += drop_chunk(oldest);
		}
		nopal_context_let_go();
	}
	if (may)
		mutex_unlock(&nopal_lock);
	schedule_delayed_work(&trimming, TRIM_EVERY);
}

void nopal_records_trim(bool on)
{
	if (on)
		schedule_delayed_work(&trimming, TRIM_EVERY);
	else
		cancel_delayed_work_sync(&trimming);
}
