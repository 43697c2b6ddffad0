/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * nopal in a kernel that has nothing: what the two call of each other. docs/porting.md describes it in order.
 *
 * The kernel's linker script gives nopal_image, where 64 MiB begin that are aligned to their size and hold nothing else;
 * nopal_patches and nopal_patches_end around the sections .nopal_patches; nopal_notes and nopal_notes_end around the
 * sections .note.nopal.
 */
#ifndef NOPAL_BARE_H
#define NOPAL_BARE_H

#include "core.h"
#include "traces.h"

#define NOPAL_BARE_PROCESSORS 8
#define NOPAL_BARE_CHUNKS 32

/* Constant once it is passed on. */
struct nopal_bare {
	struct nopal_traced *functions;       /* `site` is where the NOPs of -fpatchable-function-entry=5 are */
	uint32_t function_count;
	uint32_t processors;
	int64_t mirror;         /* from each stack to memory of the same size, which is nopal's alone */
	void (*interrupt_others)(void);                         /* so that each calls nopal_bare_interrupted */
	void (*say)(const char *text, uint32_t length);         /* an answer of the control line */
	void (*send)(const void *bytes, uint32_t length);       /* a piece of the data file */
};

/* Call it once, while one processor runs. */
void nopal_bare_begin(const struct nopal_bare *kernel);

/* Call it on each processor, numbered from 0, before it runs a function that can be traced or takes an interrupt. From
 * then on, the base of %fs is nopal's. On other stacks, only entries are recorded. */
void nopal_bare_join(uint32_t number, uint64_t stack, uint64_t stack_bytes);

/* Called by the handler of breakpoints, with interrupts off. Replaces the address behind the breakpoint by the one
 * where the processor goes on. False: it is not nopal's. */
bool nopal_bare_breakpoint(uint64_t *address);

/* Called by the handler of interrupt_others, which returns by iretq. Interrupts that are off keep commands waiting. */
void nopal_bare_interrupted(void);

/* Call it on a processor between two pieces of its work, in no interrupt and no function that can be traced: its
 * records can then be collected. */
void nopal_bare_rest(void);

/* Sends the chunks that can be collected, and returns their number. One processor at a time collects. */
uint32_t nopal_bare_collect(void);

/* For nopal_traces_command. Used only by the processor that gives commands. */
extern struct nopal_traces nopal_bare_traces;

/* ---- between the parts of the port ---- */

extern struct nopal_bare nopal_bare;            /* by nopal_bare_begin */
void nopal_bare_text_begin(void);

#endif
