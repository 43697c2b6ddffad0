/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Real code of core under exploration: actors run it, each on a stack of its own, and stop before each of its atomic
 * operations and at each race point, where the exploration chooses who goes on. For this it is compiled with
 * -fsanitize=thread. The functions that the compiler then calls are here, in place of that sanitizer's library.
 *
 * The accesses that an actor must know before it accesses the same memory are kept by the rules of C's memory model, so
 * that a missing order is found on any processor. An operation can be weakened, as a mistake to plant.
 */
#ifndef NOPAL_SIM_ACTORS_H
#define NOPAL_SIM_ACTORS_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_ACTORS 4
#define SIM_PLACES 3            /* memory that passes between actors */
#define SIM_WORDS 8             /* atomic variables by which it passes */
#define SIM_STACK_BYTES 2048

struct sim_actor {
	void *stack_pointer;            /* 0: it does not run, or has come to its end */
	const char *before;             /* what it will do next */
	bool alone;                     /* this concerns no other actor, so none need go on before it */
	void (*on_signal)(void);        /* to be run first */
	_Alignas(16) uint8_t stack[SIM_STACK_BYTES];
};

/* The actors for which an access is visible, and the words through which it becomes so. A bit for each. */
struct sim_known {
	uint8_t actors;
	uint8_t words;
};

struct sim_actors {
	struct sim_known write[SIM_PLACES];
	struct sim_known read[SIM_PLACES][SIM_ACTORS];
	uint32_t running;
};

extern struct sim_actor sim_actor[SIM_ACTORS];
extern struct sim_actors sim_actors;

/* The memory and the words that are watched; all else is an actor's own. */
extern void *sim_place[SIM_PLACES];
extern uint32_t sim_place_bytes;
extern void *sim_word[SIM_WORDS];

/* Whether actors stop before operations on other words too, where a signal handler may come. */
extern bool sim_stops_alone;

/* Mistakes to plant. Asked before an atomic operation of the running actor, with the value that it stores, if any; may
 * be 0. */
enum sim_operation { SIM_LOAD, SIM_STORE, SIM_COMPARE_EXCHANGE, SIM_ADDITION };
enum sim_weakness {
	SIM_SOUND,
	SIM_RELAXED,    /* it orders nothing */
	SIM_CARELESS,   /* compare-and-swap swaps any value, and says that it was as expected */
};
extern enum sim_weakness (*sim_weakness_of)(enum sim_operation operation, const volatile void *at, uint64_t stored);

void sim_actors_begin(void);
void sim_actor_begin(uint32_t actor, void (*run)(void));

/* Lets the actor run to its next stop. */
void sim_actor_go_on(uint32_t actor);

/* It never runs again. */
void sim_actor_kill(uint32_t actor);

/* The running actor has learnt all that another one knew, which has ended. */
void sim_learn_of(uint32_t actor);

/* Called for the accesses of actors' code that is not compiled so. */
void sim_reads(const void *at);
void sim_writes(const void *at);

#endif
