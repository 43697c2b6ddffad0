/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * A simulated process, a tool that collects its chunks, and the outcome of every event.
 */
#ifndef NOPAL_TEST_WORLD_H
#define NOPAL_TEST_WORLD_H

#include "core.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                             \
	do {                                                                                                         \
		if (!(condition))                                                                                    \
			failed(__FILE__, __LINE__, #condition);                                                      \
	} while (0)

_Noreturn void failed(const char *file, int line, const char *condition);

/* Printed when a check fails: where in an enumeration the test is. */
extern char circumstances[256];

#define SLOT (STACK + 0x8000)
#define STACK 0x7f0000800000u       /* a stack part begins here */
#define OTHER_STACK 0x7f0055550000u
#define PART 0x10000u
#define MIRROR (-0x100000000000)

extern struct nopal_process process;
extern struct nopal_region *region;

/* A process of one thread, with this many chunks. */
void world_begin(uint32_t chunks);

/* A new thread in this control block, which becomes the running one. */
void thread_begin(struct sim_thread *thread, uint32_t id);

/* The context that is noted for a control block; 0: none. */
struct nopal_context *context_of(const struct sim_thread *thread);

/* The outcome of an event. */
enum outcome {
	RECORDED,       /* an entry is wrapped */
	NOT_WRAPPED,    /* recorded without wrapping, or lost */
	UNKNOWN,        /* the thread died before it was done */
};

struct event {
	uint64_t slot;
	uint64_t clock;     /* 0: not known */
	uint32_t kind;
	enum outcome outcome;
	uint32_t found;     /* by the tool */
	uint32_t found_kind;
	uint32_t thread;
	uint32_t end;       /* how many events had begun when it was done; 0: it is not */
	uint32_t gaps;      /* told to its thread's reader before it */
};

/* Site n is the n-th event. */
#define EVENTS 0x40000
extern struct event events[EVENTS];
extern uint32_t event_count;

/* Performs the steps of a thunk for an event of this kind; returns its number. */
uint32_t play(uint32_t kind, uint64_t slot);

/* An entry, and an exit if the call was wrapped. */
void play_call(uint32_t entry, uint64_t slot);

/* Entries, one below the other, from `slot` down; the return address of each is 64 bytes below that of its caller. */
void play_down(uint64_t slot, uint32_t calls);

/* Events of the current chunk until there is room for less than `bytes` more. */
void fill_chunk(uint64_t slot, uint32_t bytes);

/* The tool takes the chunks that threads have handed over, except those in which a record is still to be stored. */
void tool_collect(void);

/* The same for a chunk of a thread that has ended. */
void tool_take_over(uint32_t thread);

/* Call it when all threads have ended. The tool takes the remaining chunks. Checks that every chunk is free again, that
 * records are in the order of time and of sequence, that clocks are right, that every event was found once, or is
 * counted as lost, or its thread died before it was done, and that a gap is told where one is lost. `holes` words may
 * be unwritten. */
void world_end(uint32_t holes);

uint64_t lost_events(void);
uint64_t lost_for(uint32_t reason);

/* Resync records of this reason that the tool has found. */
uint32_t resyncs_found(uint32_t reason);

uint32_t chunks_in_state(uint32_t state);

/* The scenarios of the enumerations below. Each begins the world, and calls arm() when its race points are to count. */
extern void (*const scenarios[])(void);
void arm(void);

/* Runs `scenario` once undisturbed; then for each race point that it passes with `handler` there; then for each race
 * point that the handler passes there with another `handler` nested. No handler runs while signals are blocked. `end`
 * checks each run. */
void at_all_race_points(void (*scenario)(void), void (*handler)(void), void (*end)(void));

/* Runs `scenario` with `handler` at each race point that it passes, except those of the handler. */
void at_every_race_point(void (*scenario)(void), void (*handler)(void), void (*end)(void));

/* Runs `scenario` for each race point that it passes, and kills the running thread there; or the process, which may
 * also end while the thread has signals blocked. `after` checks each run; it gets the name of the point, 0 for the run
 * in which nobody died. */
void die_at_all_race_points(bool also_blocked, void (*scenario)(void), void (*after)(const char *point));

struct test {
	const char *name;
	void (*run)(void);
};
extern const struct test race_tests[], death_tests[], full_tests[], context_tests[], stack_tests[], request_tests[],
	unwind_tests[], command_tests[], latency_tests[],
	kernel_tests[], count_tests[];

#endif
