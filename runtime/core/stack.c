/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The mirror: for each stack that records, memory at a constant distance that holds the return addresses of wrapped
 * calls. It is made in parts, each when a slot in it is first met; no part is ever written that was not mapped by us.
 */
#include "arch.h"
#include "core.h"
#include "port.h"

#define PART_BYTES ((uint64_t)1 << NOPAL_STACK_PART_SHIFT)
#define NEAR 8192

#define PROBES 64u

static uint64_t hash(uint64_t number)
{
	return (number * 0x9e3779b97f4a7c15u) >> 40;
}

static uint64_t *part_word(struct nopal_process *process, uint64_t number, uint32_t probe)
{
	return &process->stack_parts[(hash(number) + probe) & (NOPAL_STACK_PARTS - 1)];
}

static bool is_mirrored(struct nopal_process *process, uint64_t number)
{
	for (uint32_t probe = 0; probe < PROBES; probe++) {
		uint64_t seen = __atomic_load_n(part_word(process, number, probe), __ATOMIC_RELAXED);
		if (!seen || seen / NOPAL_PART_STATES == number)
			return seen % NOPAL_PART_STATES == NOPAL_PART_MIRRORED;
	}
	return false;
}

/* Whether the mirror of a part may be mapped. The kernel counts adjoining mirrors as one mapping. It limits the number
 * of mappings, and most of them are left to the program. */
static bool may_map(struct nopal_process *process, uint64_t number)
{
	if (is_mirrored(process, number - 1) || is_mirrored(process, number + 1))
		return true;
	uint64_t left = __atomic_load_n(&process->mappings_left, __ATOMIC_RELAXED);
	while (left && !__atomic_compare_exchange_n(&process->mappings_left, &left, left - 1, false, __ATOMIC_RELAXED,
						    __ATOMIC_RELAXED)) {
	}
	return left;
}

/* Maps the mirror of the part with `slot`, whose word is PENDING. */
static unsigned map_part(struct nopal_process *process, uint64_t slot, uint64_t *word)
{
	uint64_t number = slot / PART_BYTES;
	port_race_point("stack part pending");
	bool done = may_map(process, number) &&
		    port_map_mirror((uintptr_t)((int64_t)(number * PART_BYTES) + process->mirror), PART_BYTES, slot);
	unsigned state = done ? NOPAL_PART_MIRRORED : NOPAL_PART_REFUSED;
	if (!done)
		__atomic_add_fetch(&process->region->stacks_unmirrored, 1, __ATOMIC_RELAXED);
	__atomic_store_n(word, number * NOPAL_PART_STATES + state, __ATOMIC_RELEASE);
	return state;
}

/* Maps the mirror of the part with `slot` unless it is mapped. The table uses open addressing; words only change from 0 to a
 * part, and from PENDING to a final state. A part that another thread is mapping (PENDING) counts as refused for now.
 * While our part is PENDING, no handler may run: it might jump out and leave it PENDING for ever. */
static unsigned part_state(struct nopal_process *process, uint64_t slot)
{
	uint64_t number = slot / PART_BYTES;
	if (!process->mirror)
		return NOPAL_PART_REFUSED;
	for (uint32_t probe = 0; probe < PROBES; probe++) {
		uint64_t *word = part_word(process, number, probe);
		uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		if (!seen) {
			if (process->quiet)
				return NOPAL_PART_REFUSED;
			uint64_t signals = port_block_signals();
			bool ours = __atomic_compare_exchange_n(word, &seen, number * NOPAL_PART_STATES + NOPAL_PART_PENDING, false,
								__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
			unsigned state = ours ? map_part(process, slot, word) : NOPAL_PART_ABSENT;
			port_restore_signals(signals);
			if (ours)
				return state;
		}
		if (seen / NOPAL_PART_STATES == number)
			return seen % NOPAL_PART_STATES;
	}
	return NOPAL_PART_REFUSED;
}

/* If a stack continues closely into a part beside the known range, the range is extended by that part, so that a deep
 * recursion stays on the fast path. Anything else is another stack and gets a new range, of span 0 if it has no mirror.
 */
enum nopal_stack nopal_stack_reach(struct nopal_process *process, struct nopal_range *range, uint64_t slot)
{
	uint64_t part = slot / PART_BYTES * PART_BYTES;
	struct nopal_range known = *range;
	uint64_t high = known.low + known.span;
	bool mirrored = part_state(process, slot) == NOPAL_PART_MIRRORED;
	bool below = part + PART_BYTES == known.low && known.low - slot <= NEAR;
	bool above = part == high && slot - high <= NEAR;
	if (mirrored && known.span && (below || above)) {
		*range = (struct nopal_range){ below ? part : known.low, known.span + PART_BYTES };
		return NOPAL_STACK_SAME;
	}
	*range = (struct nopal_range){ part, mirrored ? PART_BYTES : 0 };
	return range->low == known.low && range->span == known.span ? NOPAL_STACK_SAME : NOPAL_STACK_ANOTHER;
}
