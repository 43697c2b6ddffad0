/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The first bytes of the agent's image, which stands at the start of every arena.
 */
	.section .nopal_image, "ax", @progbits
	.globl nopal_image, nopal_process
nopal_image:
	.hidden nopal_process
nopal_process:
	.quad 0                 /* the tool puts the address of struct nopal_process here */

	.section .note.GNU-stack, "", @progbits
