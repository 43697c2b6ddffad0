/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef MEASURE_H
#define MEASURE_H

#include <time.h>

static inline double nanoseconds(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

/* The processor time that the process has used. */
static inline double processor_nanoseconds(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

#endif
