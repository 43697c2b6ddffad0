/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Work whose calls are known, compiled with -fpatchable-function-entry=5.
 */
#include "kernel.h"
#include "nopal.h"

#define TRACED __attribute__((noipa))

TRACED uint64_t leaf(uint64_t number)
{
	return number * 3 + 1;
}

TRACED uint64_t middle(uint64_t number)
{
	return leaf(number) + leaf(number + 1);
}

/* Its last call becomes a jump. */
TRACED uint64_t jump(uint64_t number)
{
	return leaf(number * 2);
}

TRACED uint64_t work(uint32_t processor, uint64_t times)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < times; i++) {
		sum += middle(i) + jump(i);
		if (i % 1000 == 0)
			NOPAL_MARK(work_thousand, "processor=%u done=%lu", processor, i);
	}
	NOPAL_MARK(work_end, "name=%s sum=%lu", processor ? "second" : "first", sum);
	return sum;
}

TRACED void count(uint64_t *ticks)
{
	__atomic_store_n(ticks, *ticks + 1, __ATOMIC_RELAXED);
}

TRACED void tick(uint64_t *ticks)
{
	count(ticks);
	__asm__ volatile("");
}
