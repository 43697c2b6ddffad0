/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * The part of this header of the kernel that record.S needs in a program.
 */
#define SYM_START(name, linkage, alignment) .globl name; name:
#define ENDBR
#define SYM_FUNC_END(name)
