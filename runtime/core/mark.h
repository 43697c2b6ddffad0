/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * A marker that is on, as the program's code calls it: struct nopal_marker of include/nopal.h, which the tool fills in.
 * A probe is one whose values its detour fetches.
 */
#ifndef NOPAL_CORE_MARK_H
#define NOPAL_CORE_MARK_H

#include "core.h"

/* The kinds of a marker's values, two bits each from NOPAL_SHAPE_VALUES on; below it their number. */
#define NOPAL_SHAPE_VALUES 8
#define NOPAL_VALUE_WORD 0u
#define NOPAL_VALUE_STRING 1u   /* the address of text that ends with NUL; 0 is shown as "(null)" */
#define NOPAL_VALUE_BYTES 2u    /* the address of an address and a length */
#define NOPAL_VALUE_FETCHED 3u  /* the address of a struct nopal_text, whose text may be gone */

struct nopal_mark {
	uint64_t call;
	uint64_t record;
	uint64_t event;         /* its number */
	uint64_t shape;
	uint64_t probes;        /* of a probe: the number of fetched values */
};

struct nopal_text {
	uint64_t address;
	uint32_t length;        /* bytes recorded */
	uint32_t cut;           /* bytes omitted */
};

/* Records a marker's `values`. `stack` is the program's stack pointer. */
void nopal_mark(const struct nopal_mark *mark, const uint64_t *values, uint64_t stack);

/* ---- Fetching ---- */

#define NOPAL_FETCHES 12
#define NOPAL_FETCH_LOADS 6
#define NOPAL_FETCH_CONSTANT 16 /* in place of a register */

/* How to fetch one value of a probe: a shifted register, or 0, plus offset[0]; then `loads` loads from memory, each
 * plus the next offset. struct nopal_mark is followed by as many of these as it says. */
struct nopal_fetch {
	uint8_t source;         /* the register, in the processor's numbering */
	uint8_t loads;
	uint8_t bytes;          /* of the last load: 1, 2, 4 or 8. The others load 8 */
	uint8_t text;           /* the value is the address of text, which is recorded */
	uint8_t shift;          /* number of bits by which the register is first shifted right */
	uint8_t reserved[3];
	uint64_t offset[NOPAL_FETCH_LOADS + 1];
};

/* Records a probe. If the shape counts one more value, that holds a bit for each value that could not be read and is 0
 * or empty. `registers` are 16, in the processor's numbering. */
void nopal_fetch(const struct nopal_mark *mark, const uint64_t *registers);

/* Measures text that ends with NUL at an address that may be any number; it ends where memory cannot be read, or after
 * `most` bytes. No page behind its end is read. False: nothing can be read. */
bool nopal_measure(uint64_t address, uint32_t most, struct nopal_text *text);

/* Copies memory that may be unmapped; false, with anything in `to`, if it is, or if no system call is allowed. */
bool nopal_read(uint64_t address, void *to, uint32_t bytes);

#endif
