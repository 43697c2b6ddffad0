/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Changing text while others may run it. Each way to do so is an order of numbered steps, written in poke.c and told in
 * docs/poking-live-code.md; port/sim explores what may happen between any two of them.
 */
#ifndef NOPAL_POKE_H
#define NOPAL_POKE_H

#include <stdbool.h>
#include <stdint.h>

#include "arch.h"

#define NOPAL_WINDOW_BYTES 19   /* the longest window: whole instructions, of which four bytes are not enough */

enum nopal_poke_order {
	/* The first two bytes of a thunk, between a NOP and a jump to its body. */
	NOPAL_POKE_SWITCH,
	/* A window of one instruction that begins at an even address, such as a marker's: in a program, without a stop. */
	NOPAL_POKE_IN_PLACE,
	/* A window of one instruction at any address, in a kernel whose breakpoint handler calls nopal_poke_trapped. */
	NOPAL_POKE_BREAKPOINT,
	/* Any window, with everything else stopped. */
	NOPAL_POKE_INSERT,
	NOPAL_POKE_REMOVE,
};

/* One site. Filled in by the caller, but for `left_alone`. */
struct nopal_poke {
	uint64_t site;                          /* address of the window */
	uint8_t before[ARCH_JUMP_BYTES];        /* what must stand there; nobody looks for a switch */
	uint8_t after[ARCH_JUMP_BYTES];          /* what shall; of a switch, the first two bytes */
	bool left_alone;                        /* something else stood there, or a saved place was inside */
	uint64_t fixup;                         /* BREAKPOINT: where those go on who come meanwhile */
	uint64_t body;                          /* INSERT: the displaced instructions */
	uint8_t window;                         /* INSERT: bytes that they were */
	uint8_t displaced[NOPAL_WINDOW_BYTES];  /* INSERT: for each byte that an instruction begins with, its distance from `body` now */
	uint64_t code;                          /* REMOVE: the site's generated code, [code, code_end) */
	uint64_t code_end;
};

/* Does all steps for all sites. Nobody else may change any of them meanwhile. */
void nopal_poke(enum nopal_poke_order order, struct nopal_poke *pokes, uint32_t count);

/* Does one step, numbered from 1. False: the order has no such step. */
bool nopal_poke_step(enum nopal_poke_order order, uint32_t number, struct nopal_poke *pokes, uint32_t count);

/* For the breakpoint handler: where a processor goes on that ran into a breakpoint at `address`, by the pokes that are
 * being done; 0: the breakpoint is not of nopal's. */
uint64_t nopal_poke_trapped(const struct nopal_poke *pokes, uint32_t count, uint64_t address);

/* Whether anything may still go on in [low, high), so that it must stay. To be asked while all is stopped. */
bool nopal_poke_in_use(uint64_t low, uint64_t high);

#endif
