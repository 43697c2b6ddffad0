/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Shared by the explorations of changing sites: processors that pass sites for ever, signals, and a patcher.
 */
#ifndef NOPAL_TEST_SITES_H
#define NOPAL_TEST_SITES_H

#include "poke_protocol.h"
#include "rules.h"
#include "sim_text.h"

/* The ways in which a processor may see the bytes that it fetches. */
#define SITE_WAYS 32

struct site_world {
	void *patcher;                  /* its state, which belongs to the state that is explored */
	uint32_t patcher_bytes;
	uint32_t patcher_choices;
	void (*begin)(void);
	/* Each does a step, or is not possible in this state: then false. */
	bool (*patch)(uint32_t choice);
	bool (*handle_signal)(uint32_t processor);
	bool (*run)(uint32_t processor, uint32_t way);
};

/* As expect() in rules.h. */
void explore_sites(const char *what, const struct site_world *world, const char *rule);

/* Rules that more than one world has. */
extern const char garbled[], freed[], unmade[], overwritten[];

#endif
