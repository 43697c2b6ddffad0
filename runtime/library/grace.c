/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Waiting for probes that run. A probe is counted in the counter of the present phase; a thread that waits begins a new
 * phase and waits until the old one's counters are 0. A thread may have looked at the phase and not counted itself yet,
 * so that is done twice. Counters are spread over cache lines by thread.
 */
#include "library.h"

#include <sched.h>

#define SHARDS 64

static struct {
	_Alignas(64) uint64_t running[2];
} shards[SHARDS];
/* Changed by the waiting thread, under the lock of connect.c; read by all. */
static unsigned phase;
/* The number of nested probes in the calling thread. */
static _Thread_local unsigned within __attribute__((tls_model("initial-exec")));

static unsigned shard(void)
{
	uint64_t pointer = (uint64_t)__builtin_thread_pointer();
	return (unsigned)((pointer * 0x9e3779b97f4a7c15u) >> 58);
}

unsigned grace_begin(void)
{
	unsigned token = shard() << 1 | (__atomic_load_n(&phase, __ATOMIC_RELAXED) & 1);
	within++;
	/* Sequentially consistent, with the counters' loads in wait_for_phase: either we are seen, or we see what was
	 * published before. */
	__atomic_add_fetch(&shards[token >> 1].running[token & 1], 1, __ATOMIC_SEQ_CST);
	return token;
}

void grace_end(unsigned token)
{
	__atomic_sub_fetch(&shards[token >> 1].running[token & 1], 1, __ATOMIC_RELEASE);
	within--;
}

unsigned grace_depth(void)
{
	return within;
}

static void wait_for_phase(unsigned old)
{
	for (unsigned i = 0; i < SHARDS; i++)
		while (__atomic_load_n(&shards[i].running[old & 1], __ATOMIC_SEQ_CST))
			sched_yield();
}

void grace_wait(void)
{
	for (int i = 0; i < 2; i++)
		wait_for_phase(__atomic_fetch_add(&phase, 1, __ATOMIC_SEQ_CST));
}
