/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * A marker that is on, as the program's code calls it: struct nopal_marker of include/nopal.h, which the tool fills in.
 */
#ifndef NOPAL_CORE_MARK_H
#define NOPAL_CORE_MARK_H

#include "core.h"

/* What the values of a marker are, two bits each from NOPAL_SHAPE_VALUES on; below it their number. */
#define NOPAL_SHAPE_VALUES 8
#define NOPAL_VALUE_WORD 0u
#define NOPAL_VALUE_STRING 1u   /* the address of text that ends with NUL; 0 is shown as "(null)" */
#define NOPAL_VALUE_BYTES 2u    /* the address of an address and a length */

struct nopal_mark {
	uint64_t call;
	uint64_t record;
	uint64_t event;         /* its number */
	uint64_t shape;
	uint64_t probes;
};

/* Records a marker's `values`. `stack` is the program's stack pointer. */
void nopal_mark(const struct nopal_mark *mark, const uint64_t *values, uint64_t stack);

#endif
