/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Changing text while others may run it. Each way to do so is an order of numbered steps, written in poke_protocol.c and described in
 * docs/poking-live-code.md; port/sim explores what may happen between any two of them.
 */
#ifndef NOPAL_POKE_PROTOCOL_H
#define NOPAL_POKE_PROTOCOL_H

#include <stdbool.h>
#include <stdint.h>

#include "arch.h"

#define NOPAL_WINDOW_BYTES 19   /* the longest window: whole instructions, the last of which contains the fifth byte */

enum nopal_poke_order {
	/* The first two bytes of a thunk: a NOP, or a jump to its body. */
	NOPAL_POKE_SWITCH,
	/* A window of one instruction that begins at an even address, such as a marker's: in a program, without a stop. */
	NOPAL_POKE_IN_PLACE,
	/* A window of one instruction at any address, in a kernel whose breakpoint handler calls nopal_poke_trapped. */
	NOPAL_POKE_BREAKPOINT,
	/* Any window, with everything else stopped. */
	NOPAL_POKE_INSERT,
	NOPAL_POKE_REMOVE,
};

/* One site. The caller fills in all but `left_alone`. */
struct nopal_poke {
	uint64_t site;                          /* address of the window */
	uint8_t before[ARCH_JUMP_BYTES];        /* the bytes expected there; not checked for a switch */
	uint8_t after[ARCH_JUMP_BYTES];          /* the bytes to write; for a switch, the first two */
	bool left_alone;                        /* other bytes were there, or a saved address was inside */
	uint64_t fixup;                         /* BREAKPOINT: where threads that hit it go on */
	uint64_t body;                          /* INSERT: the displaced instructions */
	uint8_t window;                         /* INSERT: length of the instructions before the move */
	uint8_t displaced[NOPAL_WINDOW_BYTES];  /* INSERT: for each first byte of an instruction, its distance from `body` after the move */
	uint64_t code;                          /* REMOVE: the site's generated code, [code, code_end) */
	uint64_t code_end;
};

/* Performs all steps for all sites. The caller must be the only one to change them meanwhile. */
void nopal_poke(enum nopal_poke_order order, struct nopal_poke *pokes, uint32_t count);

/* Performs one step, numbered from 1. False: the protocol has no such step. */
bool nopal_poke_step(enum nopal_poke_order order, uint32_t number, struct nopal_poke *pokes, uint32_t count);

/* For the breakpoint handler: where a processor goes on after a breakpoint at `address`, by the current pokes; 0: the
 * breakpoint is not nopal's. */
uint64_t nopal_poke_trapped(const struct nopal_poke *pokes, uint32_t count, uint64_t address);

/* Whether a thread may still run in [low, high), so that it must stay. Call it while all threads are stopped. */
bool nopal_poke_in_use(uint64_t low, uint64_t high);

#endif
