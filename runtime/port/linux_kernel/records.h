/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * Records of functions, read in the kernel.
 */
#ifndef NOPAL_RECORDS_H
#define NOPAL_RECORDS_H

#include <linux/types.h>
#include "core.h"

struct nopal_function;

struct nopal_record {
	uint64_t clock;
	uint32_t site, tag, thread;
	bool is_exit, has_result;
	uint32_t event;         /* of a marker; 0: it is an entry or an exit */
	const uint64_t *words;  /* the whole record of a marker, of so many words */
	uint32_t count;
	uint64_t values[NOPAL_ARGUMENTS];       /* arguments, or the result; 0 where they were not recorded */
};

struct nopal_reading {
	const uint64_t *at, *end;
	uint32_t clock_high, thread;
	bool is_copy;   /* records that are not stored yet never will be: they are skipped */
	bool with_events;
};

/* The next entry or exit, or event of a marker where these are wanted. False: there is none, or it is not stored yet. */
bool nopal_record_next(struct nopal_reading *reading, struct nopal_record *record);
/* Under nopal_lock; 0: no plan has this site. */
const struct nopal_function *nopal_record_function(const struct nopal_record *record);

/* Copies what this processor has recorded in its chunk, at most NOPAL_CHUNK_BYTES. Calls nothing; call it with
 * interrupts or preemption off. Returns how many bytes; 0: it has none. */
uint32_t nopal_records_copy(void *to);
struct nopal_reading nopal_reading_of_copy(const void *chunk, uint32_t bytes);

/* An event of a marker in the buffer. */
struct nopal_seen {
	uint64_t clock;
	const uint64_t *words;
	uint32_t count, event, thread, processor;
};

/* The newest events of those that are shown. */
struct nopal_newest {
	bool (*is_shown)(const struct nopal_seen *seen);
	struct nopal_seen *events;
	uint32_t count, room;
	uint64_t all;           /* with those that there was no room for */
};

struct nopal_counts {
	uint64_t records, entries, lost;
};

/* The following are called under nopal_lock. They sleep, and fail with -EBUSY while a recording has the region. */

/* Takes records out of the buffer, as lines of text. Returns how many bytes; 0: there are none. */
ssize_t nopal_records_text(char *bytes, size_t room);
/* The records since the counts began, and how many of them are in the buffer. */
int nopal_records_count(struct nopal_counts *all, uint64_t *queued);
/* Gathers the newest events of markers in the buffer, in order of time; they stay there. The caller holds the region,
 * which keeps their words. */
void nopal_records_newest(struct nopal_newest *newest);
/* Empties the buffer, and counts from 0. */
void nopal_records_reset(void);
/* Whether older records make room for newer ones. */
void nopal_records_trim(bool on);

#endif
