/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * What record.S takes from this header of the kernel's, in a program.
 */
/* A program's %gs begins at 0. */
#define PER_CPU_VAR(name) %gs:name
