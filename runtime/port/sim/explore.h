/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Exhaustive exploration: from the first state on, all possible steps are tried in every reached state, until no new
 * state is found or one breaks a rule. A state is the contents of some memory; steps change it in place.
 *
 * States are told apart by 128 bits of hash: among a hundred million, two are taken for one with a chance of 1 in
 * 10^22.
 */
#ifndef NOPAL_SIM_EXPLORE_H
#define NOPAL_SIM_EXPLORE_H

#include <stdbool.h>
#include <stdint.h>

/* Memory that belongs to the state. States that differ only by an exchange of two parts of the same `kind`, not 0, are
 * the same state: equal threads are interchangeable. */
struct sim_part {
	void *at;
	uint32_t bytes;
	uint32_t kind;
};

struct sim_exploration {
	const struct sim_part *parts;
	uint32_t part_count;
	uint32_t choices;               /* the possible steps are numbered from 0 to choices - 1 */
	bool deep;                      /* newest states first: needs less memory, finds longer ways to break a rule */
	void (*begin)(void);            /* makes the first state */
	bool (*take)(uint32_t choice);  /* performs a step; false, with nothing changed: it is not possible in this state */
	bool (*may_rest)(void);         /* whether a state without further steps is valid; may name the rule it breaks */
};

struct sim_explored {
	uint64_t states;
	uint64_t steps;
	const char *broken;             /* returns the broken rule, with the way to it on standard output; 0: none */
};

struct sim_explored sim_explore(const struct sim_exploration *exploration);

/* Called by a step that breaks this rule. */
void sim_broken(const char *rule);

/* Called by a step to describe itself, for the way to a broken rule. Free otherwise. */
void sim_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
