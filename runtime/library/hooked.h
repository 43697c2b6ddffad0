/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Shared by hook.c and hooked.S: which vector registers the CPU has, to be kept while a hook runs.
 */
#ifndef NOPAL_HOOKED_H
#define NOPAL_HOOKED_H

#define KEEP_VECTORS 0          /* 128 bits only */
#define KEEP_AVX 1
#define KEEP_AVX_512 2

#endif
