/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * A histogram of any 64-bit values, exact up to 63 and within 1/32 above. One thread or processor adds to it, also from
 * its signal or interrupt handlers; anybody may read it meanwhile.
 */
#ifndef NOPAL_HISTOGRAM_H
#define NOPAL_HISTOGRAM_H

#include "arch.h"

/* Each doubling is divided into 32 buckets of equal width. */
#define NOPAL_HISTOGRAM_SHIFT 5
#define NOPAL_HISTOGRAM_BUCKETS ((64 - NOPAL_HISTOGRAM_SHIFT + 1) << NOPAL_HISTOGRAM_SHIFT)

struct nopal_histogram {
	uint64_t buckets[NOPAL_HISTOGRAM_BUCKETS];
};

static inline uint32_t nopal_histogram_bucket(uint64_t value)
{
	if (value < 2u << NOPAL_HISTOGRAM_SHIFT)
		return (uint32_t)value;
	uint32_t doubling = 63 - (uint32_t)__builtin_clzll(value) - NOPAL_HISTOGRAM_SHIFT;
	return (doubling << NOPAL_HISTOGRAM_SHIFT) + (uint32_t)(value >> doubling);
}

static inline void nopal_histogram_add(struct nopal_histogram *histogram, uint64_t value)
{
	arch_add_local(&histogram->buckets[nopal_histogram_bucket(value)], 1);
}

/* The smallest and the largest value that fall into a bucket. */
uint64_t nopal_histogram_low(uint32_t bucket);
uint64_t nopal_histogram_high(uint32_t bucket);

/* Adds `one` to `sum`, which only the caller uses. */
void nopal_histogram_merge(struct nopal_histogram *sum, const struct nopal_histogram *one);

uint64_t nopal_histogram_count(const struct nopal_histogram *histogram);

/* The quantile `share` / `whole`: the largest value of its bucket; 0 if the histogram is empty. */
uint64_t nopal_histogram_quantile(const struct nopal_histogram *histogram, uint64_t share, uint64_t whole);

#endif
