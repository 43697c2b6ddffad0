/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The functions that the stubs and tables in arch/ call, by the conventions described there.
 */
#ifndef NOPAL_STUBS_H
#define NOPAL_STUBS_H

#include "core.h"

/* The integer arguments of a hooked call, which begin the area that the stub has saved. */
struct nopal_arguments {
	uint64_t integer[6];
};

void nopal_before_jump(struct nopal_arguments *arguments);

/* The personality routine of generated code. */
int nopal_personality(int version, int actions, uint64_t class, void *exception, void *context);

#endif
