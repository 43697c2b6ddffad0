/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * The part of this header of the kernel that record.S needs in a program.
 */
/* A program's %gs begins at 0. */
#define PER_CPU_VAR(name) %gs:name
