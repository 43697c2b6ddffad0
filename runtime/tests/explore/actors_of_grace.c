/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The actors of grace periods: threads that pass a marker, and one that connects and disconnects its probe. They run
 * the library's own code, compiled so that all of it is watched.
 */
#include "../../library/grace.c"

#include "explore.h"
#include "grace.h"

struct data data;
struct data *connected;
uint8_t passes, connections;
bool waits_once;

/* All actors are one thread to the library, and so have one place for their counters. */
uint64_t *grace_counters(void)
{
	return shards[shard()].running;
}

uint32_t *grace_phase(void)
{
	return &phase;
}

int sched_yield(void)
{
	return 0;
}

unsigned *grace_within(void)
{
	return &within;
}

void pass_marker(void)
{
	for (uint8_t pass = 0; pass < passes; pass++) {
		unsigned token = grace_begin();
		struct data *seen = __atomic_load_n(&connected, __ATOMIC_ACQUIRE);
		if (seen)
			sim_reads(seen);
		grace_end(token);
	}
}

void connect_and_disconnect(void)
{
	for (uint8_t connection = 0; connection < connections; connection++) {
		sim_writes(&data);
		__atomic_store_n(&connected, &data, __ATOMIC_RELEASE);
		__atomic_store_n(&connected, 0, __ATOMIC_SEQ_CST);
		if (waits_once)
			wait_for_phase(__atomic_fetch_add(&phase, 1, __ATOMIC_SEQ_CST));
		else
			grace_wait();
	}
	/* Freed. */
	sim_writes(&data);
}
