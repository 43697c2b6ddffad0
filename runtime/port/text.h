/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Functions that a host must supply besides port.h if core changes text that runs: a kernel, or a program that switches
 * its own markers. The agent in a traced process needs none of them: there the tool changes the text, from outside.
 */
#ifndef NOPAL_PORT_TEXT_H
#define NOPAL_PORT_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* Stores into text that may be running: two aligned bytes by one store, anything else in any pieces. In order with
 * other stores of the caller. */
void port_text_store(uint64_t address, const uint8_t *bytes, uint32_t count);

/* Returns when each processor has discarded the instructions that it prefetched before the call, and has left the
 * breakpoint handler if it was there. */
void port_text_synchronise(void);

/* Stops all other threads that run this text, until port_text_go; each synchronises before it continues. */
void port_text_stop(void);
void port_text_go(void);

/* An address in text at which execution would continue, while all threads are stopped. */
enum port_place_kind {
	PORT_PLACE_RUNNING,     /* a thread's instruction pointer; it can be moved */
	PORT_PLACE_SAVED,       /* an address that may belong to a signal frame or a switched-out context */
	PORT_PLACE_RETURN,      /* the return address of a wrapped frame; moving it unwraps the frame */
};

struct port_place {
	enum port_place_kind kind;
	uint64_t address;
	uint64_t caller;        /* of a wrapped frame: the return address that its mirror holds */
};

/* The place with this number, from 0; false after the last. A place keeps its number until port_text_go. */
bool port_text_place(uint32_t number, struct port_place *place);
void port_text_move(uint32_t number, uint64_t address);

#endif
