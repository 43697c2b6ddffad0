/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * The part of this header of the kernel that record.S needs in a program.
 */
.macro ANNOTATE_NOENDBR
.endm
