/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * The names that runtime/core takes from this header, in a kernel.
 */
#include <linux/limits.h>
#include <linux/types.h>

#define UINT32_MAX U32_MAX
#define UINT64_MAX U64_MAX
