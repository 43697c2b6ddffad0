/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Text that processors run while it is changed, as hardware promises it and no better. A processor may at any time run
 * bytes that it has read ahead since it last synchronised: of each aligned pair of bytes, it may see any value that
 * stood there since, now an older one and now a newer one. Only a store of an aligned pair is a single store; bytes of
 * anything else become visible one by one, in any order.
 *
 * All functions of port/text.h take effect later, one store or processor at a time, by steps that the exploration
 * chooses. It all stands in sim_text and sim_processors, which are parts of the explored state.
 */
#ifndef NOPAL_SIM_TEXT_H
#define NOPAL_SIM_TEXT_H

#include "text.h"

#define SIM_PROCESSORS 3
#define SIM_TEXT_BYTES 32
#define SIM_TEXT_PAIRS (SIM_TEXT_BYTES / 2)
#define SIM_STORES 10

struct sim_text {
	uint8_t bytes[SIM_TEXT_BYTES];
	struct sim_store {
		uint8_t at, count, bytes[2];
		uint8_t turn;           /* those of one call may happen in any order, but after those of earlier calls */
	} stores[SIM_STORES];           /* pending; count 0: none */
	bool going;                     /* all must be resumed */
};

/* A processor, and the thread on it. The fields after `sees` belong to the model: the thread's activity. */
struct sim_processor {
	uint16_t sees[SIM_TEXT_PAIRS];  /* a set of values, by number, which always contains the pair's current value */
	bool must_synchronise;
	bool must_stop;
	bool stopped;
	bool in_breakpoint_handler;
	uint8_t place;
	uint8_t saved;                  /* the place interrupted by a signal handler */
	uint8_t more[6];
};

extern struct sim_text sim_text;
extern struct sim_processor sim_processors[SIM_PROCESSORS];

/* Writes NOPs as the text, which all processors see. */
void sim_text_begin(void);

/* Writes text, which all processors see at once. */
void sim_text_lay(uint32_t at, const uint8_t *bytes, uint32_t count);

static inline uint64_t sim_text_address(uint32_t at)
{
	return (uint64_t)(sim_text.bytes + at);
}

/* Whether requests to the port are pending. */
bool sim_text_is_busy(void);

/* The port's steps to execute requests are numbered from 0 to SIM_TEXT_STEPS - 1. */
#define SIM_TEXT_STEPS (SIM_STORES + SIM_PROCESSORS + 1)
bool sim_text_step(uint32_t number);

/* The bytes that `processor` may see at `at`, up to 8: the `way`-th possible value, from 0. False after the last; there
 * may be at most `ways`. */
bool sim_text_fetch(const struct sim_processor *processor, uint32_t at, uint32_t count, uint32_t way, uint32_t ways,
		    uint8_t *bytes);

/* A bug to plant: stopped processors do not synchronise. */
extern bool sim_text_goes_on_stale;

/* How the model of a thread reports its places: see port_text_place. */
extern bool (*sim_text_place)(uint32_t number, struct port_place *place);
extern void (*sim_text_move)(uint32_t number, uint64_t address);

#endif
