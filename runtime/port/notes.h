/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The markers in a host's own image: the notes of include/nopal.h, for a host that switches them itself.
 */
#ifndef NOPAL_PORT_NOTES_H
#define NOPAL_PORT_NOTES_H

#include "mark.h"
#include "nopal.h"

/* Names, places and states are relative to the field that holds them. */
struct nopal_note {
	uint32_t owner_bytes;
	uint32_t bytes;         /* of the fields */
	uint32_t type;
	uint32_t owner[2];
	int32_t fields[];       /* struct nopal_place_note or struct nopal_marker_note */
};

/* Around the sections .note.nopal, which the linker puts side by side. */
extern const uint32_t nopal_notes[], nopal_notes_end[];

#define NOPAL_FOR_EACH_NOTE(note, wanted)                                                                                      \
	for (const struct nopal_note *note = (const struct nopal_note *)nopal_notes; (const uint32_t *)note < nopal_notes_end; \
	     note = (const struct nopal_note *)((const uint8_t *)note->fields + note->bytes))                                  \
		if (note->type == (wanted))

static inline uint64_t nopal_note_address(const struct nopal_note *note, uint32_t field)
{
	return (uint64_t)&note->fields[field] + (uint64_t)(int64_t)note->fields[field];
}

static inline const char *nopal_note_name(const struct nopal_note *note)
{
	return (const char *)nopal_note_address(note, 2);
}

/* The number of a marker's events: unlike that of any other note. */
static inline uint32_t nopal_note_number(const struct nopal_note *note)
{
	return NOPAL_EVENT_DEFINED + (uint32_t)((const uint32_t *)note - nopal_notes);
}

/* Fills in a marker, which its places may call from then on. `call` comes last, and stays. */
static inline void nopal_note_connect(const struct nopal_note *note, uint64_t call)
{
	struct nopal_mark *mark = (struct nopal_mark *)nopal_note_address(note, 0);
	const uint32_t *types = ((const struct nopal_marker_note *)note->fields)->types;
	uint64_t kinds = 0, count = 0, type;
	for (; count < NOPAL_VALUES && (type = types[count / 6] >> count % 6 * 4 & 15); count++)
		kinds |= (type == NOPAL_TYPE_STRING ? NOPAL_VALUE_STRING : type == NOPAL_TYPE_BYTES ? NOPAL_VALUE_BYTES : 0ull) << 2 * count;
	mark->shape = kinds << NOPAL_SHAPE_VALUES | count;
	mark->event = (kinds ? NOPAL_EVENT_VARIABLE : count + 1) << NOPAL_EVENT_WORDS_SHIFT | nopal_note_number(note);
	__atomic_store_n(&mark->call, call, __ATOMIC_RELEASE);
}

#endif
