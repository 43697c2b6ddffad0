/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * The names that runtime/core takes from this header, in a kernel.
 */
#include <linux/types.h>
#include <linux/stddef.h>
