/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * What record.S takes from this header of the kernel's, in a program.
 */
.macro ANNOTATE_NOENDBR
.endm
