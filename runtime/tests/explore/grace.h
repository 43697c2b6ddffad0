/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Probes that run while they are disconnected.
 */
#ifndef NOPAL_TEST_GRACE_H
#define NOPAL_TEST_GRACE_H

#include "actors.h"

#define PASSERS 2
#define DISCONNECTOR PASSERS    /* the actor that connects and disconnects */

/* The data that a probe uses: while it is connected, `connected` points to it. */
struct data {
	uint64_t in_use;
};
extern struct data data;
extern struct data *connected;
extern uint8_t passes, connections;     /* of each passer; in all */
extern bool waits_once;                 /* a mistake to plant: one phase is taken for enough */

/* The library's counters of running probes in the two phases, its phase, and the number of probes that this thread is
 * in. */
uint64_t *grace_counters(void);
uint32_t *grace_phase(void);
unsigned *grace_within(void);

void pass_marker(void);
void connect_and_disconnect(void);

#endif
