/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * kernel_pair SLICES CALLS: measures, in a program, the time that the recorder of the kernel's module (record.S) adds to a
 * call, in turn with the time of two reads of the clock. Prints a line for each: its name, and nanoseconds a call over all
 * slices.
 *
 * It records into a region of as many chunks as the module has at first; after a full chunk comes the next one, unchanged.
 * It is to be linked at a fixed address below 2 GiB, like the recorder.
 */
#include "measure.h"
#include "process.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#define CHUNKS 256
#define SITE 1

_Alignas(64) uint8_t nopal_cpu[NOPAL_CONTEXT_SLOTS];
uint8_t nopal_wanted = 1;
/* Leaves by the upper halves of addresses below 4 GiB: the recorder looks in the upper half of this table. */
uint32_t *leaves[0x10000];
__asm__(".globl nopal_leaves\nnopal_leaves = leaves + 8 * 0x8000");

static _Alignas(NOPAL_CHUNK_BYTES) uint8_t chunks[CHUNKS][NOPAL_CHUNK_BYTES];
static uint64_t switches;

void untraced(void);
void traced(void);
extern char behind_site[];

/* An empty function, and one as the module changes it: its site, and its exit with the exit's slot. */
__asm__(".balign 64\n"
	"untraced: nopl 0(%rax, %rax)\n"
	"ret\n"
	".balign 64\n"
	"traced: call nopal_entry\n"
	"behind_site: jmp slot\n"
	".balign 64\n"
	"slot: mov $(1 << 4 | 2), %r11d\n"
	"jmp nopal_return\n");

/* A chunk is full, the clock's upper half has changed, or the stack is not known yet. */
__attribute__((target("general-regs-only"))) int nopal_prepare_here(uint64_t slot, uint32_t word, uint32_t bytes)
{
	struct nopal_context *context = (struct nopal_context *)nopal_cpu;
	context->stack.low = slot & ~0xfffffull;
	context->stack.span = 1 << 20;
	context->clock_high = __rdtsc() >> 32;
	if (!(context->position & (NOPAL_CHUNK_BYTES - 1)))
		context->position = (uint64_t)chunks[switches++ % CHUNKS] + NOPAL_CHUNK_HEADER_BYTES + NOPAL_RESYNC_BYTES;
	return 0;
}

int main(int argc, char **argv)
{
	static uint32_t leaf[4096];
	if (argc != 3)
		return 2;
	long slices = atol(argv[1]), calls = atol(argv[2]);
	uint32_t behind = (uint32_t)(uintptr_t)behind_site;
	leaves[behind >> 16] = leaf;
	leaf[(behind & 0xffff) >> 4] = SITE << 4 | NOPAL_KIND_ENTRY;
	/* Makes its pages present. */
	memset(chunks, 0xff, sizeof chunks);
	double clock = 0, without = 0, with = 0;
	for (long slice = 0; slice < slices; slice++) {
		double start = nanoseconds();
		for (long i = 0; i < calls; i++) {
			__rdtsc();
			__rdtsc();
		}
		double clock_end = nanoseconds();
		for (long i = 0; i < calls; i++)
			__asm__ volatile("call untraced" : : : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
		double without_end = nanoseconds();
		for (long i = 0; i < calls; i++)
			__asm__ volatile("call traced" : : : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
		double with_end = nanoseconds();
		clock += clock_end - start;
		without += without_end - clock_end;
		with += with_end - without_end;
	}
	/* All records are there, and the last two are an entry and its exit. */
	const struct nopal_context *context = (const struct nopal_context *)nopal_cpu;
	const uint32_t *last = (const uint32_t *)context->position;
	uint64_t records = switches * ((NOPAL_CHUNK_BYTES - NOPAL_CHUNK_HEADER_BYTES - NOPAL_RESYNC_BYTES) / 8) -
			   (-context->position & (NOPAL_CHUNK_BYTES - 1)) / 8;
	if (records != 2ull * slices * calls || (last[-3] & 0xffffff) != (SITE << 4 | NOPAL_KIND_ENTRY) ||
	    (last[-1] & 0xffffff) != (SITE << 4 | NOPAL_KIND_EXIT))
		return 1;
	double total = (double)slices * calls;
	printf("clock %f\nuntraced %f\ntraced %f\n", clock / total, without / total, with / total);
	return 0;
}
