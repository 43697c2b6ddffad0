/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * The sizes of slots.S.
 */
#ifndef NOPAL_SLOTS_H
#define NOPAL_SLOTS_H

#include "device.h"

#define NOPAL_SLOT_BYTES 16
#define NOPAL_GATES 64
/* One for each exit, and behind them the gates. */
#define NOPAL_SLOTS (NOPAL_DEVICE_EXITS + NOPAL_GATES)

#endif
