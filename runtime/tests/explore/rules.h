/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Rules and helpers that the explorations share.
 */
#ifndef NOPAL_TEST_RULES_H
#define NOPAL_TEST_RULES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explore.h"

/* Set by NOPAL_EXPLORE=far: larger worlds, for minutes rather than seconds. */
extern bool far;

/* Fails unless the exploration finds that `rule` is broken, or with 0 that none is. */
void expect(const char *what, const struct sim_exploration *exploration, const char *rule);

struct test {
	const char *name;
	void (*run)(void);
};
extern const struct test in_place_tests[], stopped_tests[], chunk_tests[], grace_tests[];

#endif
