/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The world in which chunks go from hand to hand.
 */
#ifndef NOPAL_TEST_CHUNKS_H
#define NOPAL_TEST_CHUNKS_H

#include "actors.h"
#include "core.h"

#define THREADS 3
#define TOOL THREADS            /* the actor that collects */
#define LIVES 2                 /* memory of a thread that has died may be used by another */
#define CHUNKS_AT_MOST SIM_PLACES
#define EVENTS 8                /* of one thread */

struct world {
	uint8_t events[THREADS];        /* begun by each so far */
	uint8_t stored[THREADS];        /* a bit for each event */
	uint8_t found[THREADS];
	uint8_t given_up[THREADS];      /* no chunk was free */
	uint8_t life[THREADS];
	bool has_ended[THREADS * LIVES];
	uint8_t next_sequence[THREADS * LIVES];
	uint8_t clock[SIM_ACTORS];
	uint8_t signals;                /* that may still come */
	uint8_t deaths;
	bool is_over;                   /* the process has ended */
};
extern struct world world;
extern struct nopal_process process;
extern struct nopal_context contexts[THREADS];
extern uint8_t events_to_come;          /* of each thread */

/* Mistakes to plant in the tool. */
extern bool looks_late;         /* at the owner of a chunk, when it knows that the thread named there has ended */
extern bool takes_any_first;    /* of the chunks of a thread that is new to it */

/* A chunk's last word. Of an event, all others are taken to be recorded before. */
#define LAST_WORD (NOPAL_CHUNK_BYTES - 8)

static inline struct nopal_chunk_header *chunk_at(uint32_t chunk)
{
	return (struct nopal_chunk_header *)((char *)process.region + process.region->chunk_offset +
					     ((uint64_t)chunk << NOPAL_CHUNK_SHIFT));
}
static inline uint64_t *last_word(struct nopal_chunk_header *chunk)
{
	return (uint64_t *)((char *)chunk + LAST_WORD);
}
static inline uint32_t *state_word(uint32_t chunk)
{
	return (uint32_t *)((char *)process.region + process.region->state_offset) + chunk;
}

/* The actions of the actors. */
void live(void);        /* a thread's life */
void live_in_its_memory(void);     /* of one that gets the memory of a dead one */
void handle_signal(void);
void collect(void);     /* the tool's */

#endif
