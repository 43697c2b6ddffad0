/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The orders in which text is changed. A processor may have read instructions ahead, and goes on to run these until it
 * synchronises. Of the bytes that were stored meanwhile, it may see any part. The first two bytes are stored at once
 * where their address is even, and then no processor sees one without the other.
 */
#include "poke_protocol.h"

#include "text.h"

enum action {
	END,
	CHECK,          /* leave alone sites with unexpected bytes */
	STORE,          /* bytes `from` to `to` of `what` */
	SYNCHRONISE,
	STOP,
	MOVE,           /* move threads out of the windows */
	UNWRAP,
	GO,
};

enum what { NOTHING, AFTER, SKIP, BREAKPOINT };

struct step {
	uint8_t action;
	uint8_t what;
	uint8_t from;
	uint8_t to;
};

static const struct step orders[][8] = {
	[NOPAL_POKE_SWITCH] = {
		/* Both are whole instructions with valid targets: a thread may go on seeing the old one. */
		{ STORE, AFTER, 0, ARCH_SWITCH_BYTES },
	},
	[NOPAL_POKE_IN_PLACE] = {
		{ CHECK, NOTHING, 0, ARCH_JUMP_BYTES },
		/* Threads that arrive from now on jump over the tail … */
		{ STORE, SKIP, 0, ARCH_SWITCH_BYTES },
		/* … and now all threads do: no processor has the old first bytes. All see the target of the new jump. */
		{ SYNCHRONISE, NOTHING, 0, 0 },
		{ STORE, AFTER, ARCH_SWITCH_BYTES, ARCH_JUMP_BYTES },
		/* No thread that may see the new first bytes still has the old tail. */
		{ SYNCHRONISE, NOTHING, 0, 0 },
		{ STORE, AFTER, 0, ARCH_SWITCH_BYTES },
		/* The change has taken effect. */
		{ SYNCHRONISE, NOTHING, 0, 0 },
	},
	[NOPAL_POKE_BREAKPOINT] = {
		{ CHECK, NOTHING, 0, ARCH_JUMP_BYTES },
		/* Threads that arrive from now on take the fixup … */
		{ STORE, BREAKPOINT, 0, ARCH_BREAKPOINT_BYTES },
		/* … and now all threads do. */
		{ SYNCHRONISE, NOTHING, 0, 0 },
		{ STORE, AFTER, ARCH_BREAKPOINT_BYTES, ARCH_JUMP_BYTES },
		/* No thread still has the old tail. */
		{ SYNCHRONISE, NOTHING, 0, 0 },
		{ STORE, AFTER, 0, ARCH_BREAKPOINT_BYTES },
		/* No thread can hit the breakpoint or is in its handler: the fixups can go. */
		{ SYNCHRONISE, NOTHING, 0, 0 },
	},
	[NOPAL_POKE_INSERT] = {
		{ STOP, NOTHING, 0, 0 },
		{ CHECK, NOTHING, 0, ARCH_JUMP_BYTES },
		/* A thread inside the window would otherwise run the middle of the jump. */
		{ MOVE, NOTHING, 0, 0 },
		{ STORE, AFTER, 0, ARCH_JUMP_BYTES },
		/* Threads synchronise before they go on. */
		{ GO, NOTHING, 0, 0 },
	},
	[NOPAL_POKE_REMOVE] = {
		{ STOP, NOTHING, 0, 0 },
		{ CHECK, NOTHING, 0, ARCH_JUMP_BYTES },
		{ STORE, AFTER, 0, ARCH_JUMP_BYTES },
		/* Open calls return directly to their callers. */
		{ UNWRAP, NOTHING, 0, 0 },
		{ GO, NOTHING, 0, 0 },
	},
};

#define ORDERS (sizeof orders / sizeof *orders)
#define STEPS (sizeof *orders / sizeof **orders)

static bool is_inside(const struct nopal_poke *poke, uint64_t address)
{
	return address > poke->site && address < poke->site + poke->window;
}

static void check(struct nopal_poke *poke, uint8_t from, uint8_t to)
{
	const volatile uint8_t *text = (const volatile uint8_t *)poke->site;
	for (uint32_t i = from; i < to; i++)
		if (text[i] != poke->before[i])
			poke->left_alone = true;
}

static void store(const struct nopal_poke *poke, const struct step *step)
{
	static const uint8_t skip[] = ARCH_SKIP, breakpoint[] = ARCH_BREAKPOINT;
	const uint8_t *bytes = step->what == SKIP	  ? skip :
			       step->what == BREAKPOINT ? breakpoint :
							  poke->after;
	port_text_store(poke->site + step->from, bytes + step->from, step->to - step->from);
}

/* A site with a saved address inside is left alone: the address may be kept elsewhere too, or be just a number. */
static void move(struct nopal_poke *pokes, uint32_t count)
{
	struct port_place place;
	for (uint32_t number = 0; port_text_place(number, &place); number++)
		for (uint32_t i = 0; i < count; i++)
			if (place.kind != PORT_PLACE_RUNNING && is_inside(&pokes[i], place.address))
				pokes[i].left_alone = true;
	for (uint32_t number = 0; port_text_place(number, &place); number++)
		for (uint32_t i = 0; i < count; i++)
			if (place.kind == PORT_PLACE_RUNNING && !pokes[i].left_alone &&
			    is_inside(&pokes[i], place.address))
				port_text_move(number,
					       pokes[i].body + pokes[i].displaced[place.address - pokes[i].site]);
}

static void unwrap(const struct nopal_poke *pokes, uint32_t count)
{
	struct port_place place;
	for (uint32_t number = 0; port_text_place(number, &place); number++)
		for (uint32_t i = 0; i < count; i++)
			if (place.kind == PORT_PLACE_RETURN && place.address - pokes[i].code < pokes[i].code_end - pokes[i].code)
				port_text_move(number, place.caller);
}

bool nopal_poke_step(enum nopal_poke_order order, uint32_t number, struct nopal_poke *pokes, uint32_t count)
{
	if (order >= ORDERS || number - 1 >= STEPS)
		return false;
	const struct step *step = &orders[order][number - 1];
	switch (step->action) {
	case CHECK:
		for (uint32_t i = 0; i < count; i++)
			check(&pokes[i], step->from, step->to);
		return true;
	case STORE:
		for (uint32_t i = 0; i < count; i++)
			if (!pokes[i].left_alone)
				store(&pokes[i], step);
		return true;
	case SYNCHRONISE:
		port_text_synchronise();
		return true;
	case STOP:
		port_text_stop();
		return true;
	case MOVE:
		move(pokes, count);
		return true;
	case UNWRAP:
		unwrap(pokes, count);
		return true;
	case GO:
		port_text_go();
		return true;
	default:
		return false;
	}
}

void nopal_poke(enum nopal_poke_order order, struct nopal_poke *pokes, uint32_t count)
{
	for (uint32_t number = 1; nopal_poke_step(order, number, pokes, count); number++)
		;
}

uint64_t nopal_poke_trapped(const struct nopal_poke *pokes, uint32_t count, uint64_t address)
{
	for (uint32_t i = 0; i < count; i++)
		if (pokes[i].site == address && !pokes[i].left_alone)
			return pokes[i].fixup;
	return 0;
}

bool nopal_poke_in_use(uint64_t low, uint64_t high)
{
	struct port_place place;
	for (uint32_t number = 0; port_text_place(number, &place); number++)
		if (place.address >= low && place.address < high)
			return true;
	return false;
}
