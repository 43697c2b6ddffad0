/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * A host for tests, in which only those events happen that the test causes. One real thread plays all threads of a
 * simulated process; time passes only when the clock is read; signal handlers, a thread's death and the tool's work
 * happen at race points and in waits, by functions that the test supplies.
 */
#ifndef NOPAL_SIM_H
#define NOPAL_SIM_H

#include "port.h"

/* A thread and its control block: its address is the thread pointer. */
struct sim_thread {
	struct sim_thread *self;
	uint32_t id_in_block;   /* where the runtime finds it without a system call */
	uint32_t id;
	bool clock_faults;
	bool signals_blocked;
};

#define SIM_MAPPINGS 4096
#define SIM_UNREADABLE 4096

struct sim {
	uint64_t clock;
	uint64_t clock_step;        /* how far each reading advances the clock */
	struct sim_thread *running;
	uintptr_t astray;           /* the program's changed thread pointer; 0: unchanged */
	uintptr_t unreadable;       /* SIM_UNREADABLE bytes without memory begin here */
	uint32_t process;
	uint64_t signal_every;      /* a wait ends at the next multiple of this time; 0: no signals come */

	/* Supplied by the test; may be 0. */
	void (*at_race_point)(const char *name);    /* also called while signals are blocked */
	void (*in_wait)(uint32_t *word, uint32_t value);
	bool (*has_ended)(uint32_t thread);
	bool (*may_map)(uint64_t address, uint64_t bytes);

	uint64_t mapped[SIM_MAPPINGS];              /* start of each mapping made */
	uint64_t mapped_bytes[SIM_MAPPINGS];
	uint32_t mappings;
	uint32_t system_calls;
	uint32_t clock_reads;
	uint32_t wakes;
	uint32_t faults;            /* reads where there is no memory */
	uint32_t allowed_tracer;
};

extern struct sim sim;

/* Resets everything, with nothing supplied by a test. */
void sim_reset(void);

bool sim_is_mapped(uint64_t address);

#endif
