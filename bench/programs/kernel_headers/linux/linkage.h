/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * What record.S takes from this header of the kernel's, in a program.
 */
#define SYM_START(name, linkage, alignment) .globl name; name:
#define ENDBR
#define SYM_FUNC_END(name)
