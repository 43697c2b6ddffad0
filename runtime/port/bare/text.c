/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The kernel's text: a thunk for each function, and jumps to them that come and go while all processors run, by the order
 * NOPAL_POKE_BREAKPOINT of core/poke_protocol.c. Markers go on and off in the same way. The text itself shows which are on.
 */
#include "text.h"

#include "bare.h"
#include "notes.h"
#include "poke_protocol.h"
#include "thunk.h"

#define POKES 64

extern const uint8_t nopal_stub_mark[];
static const uint8_t nop[ARCH_JUMP_BYTES] = ARCH_NOP;

/* Written by the processor that gives commands, while no breakpoint is in the text. */
static struct nopal_poke pokes[POKES];
/* The same; stored with release when the pokes are complete. Read by the handler of breakpoints. */
static uint32_t poke_count;
/* Processors that have not yet answered. Set by the processor that waits for them; each of them subtracts 1. */
static uint32_t awaited;

/* ---- what core asks for ---- */

void port_text_store(uint64_t address, const uint8_t *bytes, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		__atomic_store_n((uint8_t *)address + i, bytes[i], __ATOMIC_RELEASE);
}

/* A processor that answers is in no handler of breakpoints, which keeps interrupts off; and it discards what it has
 * prefetched before it goes on, by iretq. */
void port_text_synchronise(void)
{
	uint32_t leaf = 0;
	__atomic_store_n(&awaited, nopal_bare.processors - 1, __ATOMIC_RELEASE);
	nopal_bare.interrupt_others();
	while (__atomic_load_n(&awaited, __ATOMIC_ACQUIRE))
		arch_pause();
	__asm__ volatile("cpuid" : "+a"(leaf) : : "ebx", "ecx", "edx", "memory");
}

void nopal_bare_interrupted(void)
{
	/* Release pairs with the acquire above. */
	__atomic_sub_fetch(&awaited, 1, __ATOMIC_RELEASE);
}

bool nopal_bare_breakpoint(uint64_t *address)
{
	uint32_t count = __atomic_load_n(&poke_count, __ATOMIC_ACQUIRE);
	uint64_t fixup = nopal_poke_trapped(pokes, count, *address - ARCH_BREAKPOINT_BYTES);
	*address = fixup ? fixup : *address;
	return fixup;
}

/* For orders that stop everything, of which there are none here. */
void port_text_stop(void)
{
}

void port_text_go(void)
{
}

bool port_text_place(uint32_t number, struct port_place *place)
{
	return (void)number, (void)place, false;
}

void port_text_move(uint32_t number, uint64_t address)
{
	(void)number, (void)address;
}

/* ---- changes ---- */

static bool is_on(uint64_t site)
{
	return *(const volatile uint8_t *)site != nop[0];
}

static uint32_t flush(void)
{
	uint32_t left_alone = 0;
	nopal_poke(NOPAL_POKE_BREAKPOINT, pokes, poke_count);
	for (uint32_t i = 0; i < poke_count; i++)
		left_alone += pokes[i].left_alone;
	__atomic_store_n(&poke_count, 0, __ATOMIC_RELEASE);
	return left_alone;
}

/* A processor that comes to a site while it changes goes on behind it, unrecorded. */
static uint32_t want(uint64_t site, uint64_t target, bool on)
{
	if (is_on(site) == on)
		return 0;
	uint32_t left_alone = poke_count == POKES ? flush() : 0;
	struct nopal_poke *poke = &pokes[poke_count];
	*poke = (struct nopal_poke){ .site = site, .fixup = site + ARCH_JUMP_BYTES };
	__builtin_memcpy(on ? poke->before : poke->after, nop, sizeof nop);
	arch_jump(on ? poke->after : poke->before, site, target);
	__atomic_store_n(&poke_count, poke_count + 1, __ATOMIC_RELEASE);
	return left_alone;
}

/* ---- what is wanted ---- */

static void say_markers(void)
{
	NOPAL_FOR_EACH_NOTE(note, NOPAL_NOTE_MARKER) {
		nopal_traces_say(&nopal_bare_traces, "#marker ");
		nopal_traces_say_number(&nopal_bare_traces, nopal_note_number(note), 10, " ");
		nopal_traces_say(&nopal_bare_traces, nopal_note_name(note));
		nopal_traces_say(&nopal_bare_traces, "\n");
	}
}

static uint32_t reconcile(void)
{
	const struct nopal_traces *all = &nopal_bare_traces;
	uint32_t left_alone = 0;
	for (uint32_t i = 0; i < all->function_count; i++)
		if (all->functions[i].thunk)
			left_alone += want(all->functions[i].site, all->functions[i].thunk, nopal_traces_want(all, &all->functions[i]));
	NOPAL_FOR_EACH_NOTE(note, NOPAL_NOTE_PLACE)
		if (note->fields[5] == NOPAL_PLACE_PATCHED)
			left_alone += want(nopal_note_address(note, 0), nopal_note_address(note, 1),
					   nopal_traces_want_marker(all, nopal_note_name(note)));
	return left_alone + flush();
}

/* ---- the begin ---- */

/* clang makes one NOP and gcc five, between which an interrupt could return: these become one. */
static bool is_one_nop(uint64_t site)
{
	static const uint8_t five[] = { 0x90, 0x90, 0x90, 0x90, 0x90 };
	if (!__builtin_memcmp((const void *)site, five, sizeof five))
		port_text_store(site, nop, sizeof nop);
	return !__builtin_memcmp((const void *)site, nop, sizeof nop);
}

void nopal_bare_text_begin(void)
{
	uint8_t *end = nopal_image;
	nopal_bare_traces.is_on = is_on;
	nopal_bare_traces.reconcile = reconcile;
	nopal_bare_traces.say_more = say_markers;
	NOPAL_FOR_EACH_NOTE(note, NOPAL_NOTE_MARKER)
		nopal_note_connect(note, (uint64_t)nopal_stub_mark);
	for (uint32_t i = 0; i < nopal_bare_traces.function_count; i++) {
		struct nopal_traced *function = &nopal_bare_traces.functions[i];
		function->thunk = is_one_nop(function->site) ? (uint64_t)end : 0;
		if (function->thunk)
			end = (uint8_t *)(((uint64_t)arch_make_thunk(end, function->site, i + 1) + 15) & ~15ull);
	}
}
