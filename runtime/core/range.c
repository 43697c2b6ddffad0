/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The range of the stack that a context knows. It is changed by one instruction; a range that is dropped is followed by
 * one that was never there before.
 */
#include "arch.h"
#include "core.h"
#include "port.h"

struct nopal_range nopal_range_load(struct nopal_context *context)
{
	uint64_t seen[2] = { 0, 0 };
	arch_compare_exchange_pair_local(&context->stack, seen, 0, 0);
	return (struct nopal_range){ seen[0], seen[1] };
}

bool nopal_range_exchange(struct nopal_context *context, struct nopal_range from, struct nopal_range to)
{
	uint64_t expected[2] = { from.low, from.span };
	return arch_compare_exchange_pair_local(&context->stack, expected, to.low, to.span);
}

/* An odd number, so not the address of a part. */
static uint64_t number_of_forgotten(struct nopal_context *context)
{
	return arch_add_local(&context->forgotten, 2) + 1;
}

bool nopal_range_forget(struct nopal_context *context, struct nopal_range *known)
{
	struct nopal_range none = { number_of_forgotten(context), 0 };
	bool done = nopal_range_exchange(context, *known, none);
	*known = none;
	return done;
}

void nopal_range_forget_any(struct nopal_context *context)
{
	for (uint32_t attempt = 0; attempt < NOPAL_ATTEMPTS; attempt++) {
		struct nopal_range known = nopal_range_load(context);
		port_race_point("range to forget loaded");
		if (nopal_range_forget(context, &known))
			return;
	}
	/* A handler between these may set a range of its own; we replace its low end by a number that is no stack address. */
	__atomic_store_n(&context->stack.span, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&context->stack.low, number_of_forgotten(context), __ATOMIC_RELAXED);
	__atomic_store_n(&context->stack.span, 0, __ATOMIC_RELAXED);
}
