/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0 */
#include "histogram.h"

#define PARTS (1u << NOPAL_HISTOGRAM_SHIFT)

uint64_t nopal_histogram_low(uint32_t bucket)
{
	if (bucket < 2 * PARTS)
		return bucket;
	uint32_t doubling = bucket / PARTS - 1;
	return (uint64_t)(bucket - doubling * PARTS) << doubling;
}

uint64_t nopal_histogram_high(uint32_t bucket)
{
	return bucket + 1 < NOPAL_HISTOGRAM_BUCKETS ? nopal_histogram_low(bucket + 1) - 1 : ~(uint64_t)0;
}

void nopal_histogram_merge(struct nopal_histogram *sum, const struct nopal_histogram *one)
{
	for (uint32_t bucket = 0; bucket < NOPAL_HISTOGRAM_BUCKETS; bucket++)
		sum->buckets[bucket] += __atomic_load_n(&one->buckets[bucket], __ATOMIC_RELAXED);
}

uint64_t nopal_histogram_count(const struct nopal_histogram *histogram)
{
	uint64_t count = 0;
	for (uint32_t bucket = 0; bucket < NOPAL_HISTOGRAM_BUCKETS; bucket++)
		count += __atomic_load_n(&histogram->buckets[bucket], __ATOMIC_RELAXED);
	return count;
}

uint64_t nopal_histogram_quantile(const struct nopal_histogram *histogram, uint64_t share, uint64_t whole)
{
	uint64_t count = nopal_histogram_count(histogram), below = 0;
	/* Rounded up; in two parts, as count * share may not fit. */
	uint64_t wanted = count / whole * share + (count % whole * share + whole - 1) / whole;
	for (uint32_t bucket = 0; bucket < NOPAL_HISTOGRAM_BUCKETS; bucket++) {
		uint64_t here = __atomic_load_n(&histogram->buckets[bucket], __ATOMIC_RELAXED);
		below += here;
		if (here && below >= wanted)
			return nopal_histogram_high(bucket);
	}
	return 0;
}
