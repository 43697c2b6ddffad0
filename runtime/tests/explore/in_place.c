/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Sites of one instruction that are switched while all run on: a NOP, or a jump to code of the site's own, which is
 * written anew each time, into room that code of the other site may have had before.
 *
 * Three processors pass site 0, site 1, and site 0 again, for ever; a signal handler (in a kernel: an interrupt) may
 * come at any instruction, and passes both sites too. One patcher switches either site, or both at once, and frees code
 * that nobody can get to. While it rests, a debugger may put a breakpoint on site 1 and take it away again.
 */
#include "poke_protocol.h"
#include "sites.h"

#define SITES 2
#define SLOTS 2

static const uint8_t nop[ARCH_JUMP_BYTES] = ARCH_NOP;

/* The world to explore, with its planted mistakes. */
static struct mistakes {
	enum nopal_poke_order order;
	uint32_t step_left_out;
	bool odd_sites;         /* no mistake with breakpoints */
	bool code_late;         /* code is written when jumps to it stand already */
	bool freed_at_once;     /* without a check that no processor is still inside */
	bool debugger;          /* no mistake, but a larger world */
} with;

enum { SLOT_FREE, SLOT_USED, SLOT_LEFT };
enum { DEBUGGER_AWAY, DEBUGGER_HERE, DEBUGGER_LEAVES };
#define DEBUGGED (SITES - 1)

static struct {
	uint32_t step;                  /* 0: at rest */
	uint8_t slot_of[SITES];         /* where a site leads to, plus 1; 0: it is off */
	uint8_t next_slot_of[SITES];
	uint8_t slots[SLOTS];
	uint8_t changing;               /* a bit for each site */
	uint8_t debugger;
	struct nopal_poke pokes[SITES];
	uint32_t count;
} patcher;

static uint32_t site_at(uint32_t site) { return 8 * site + with.odd_sites; }
static uint32_t slot_at(uint32_t slot) { return 16 + 8 * slot; }

/* The place of a thread: in front of a site, in the code that a site led it to, or in the breakpoint handler. */
enum { AT_SITE = 1, IN_SLOT = AT_SITE + SITES, TRAPPED = IN_SLOT + SLOTS * SITES };

static void begin(void)
{
	sim_text_begin();
	memset(&patcher, 0, sizeof patcher);
	for (uint32_t site = 0; site < SITES; site++)
		sim_text_lay(site_at(site), nop, sizeof nop);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		sim_text_lay(slot_at(slot), (uint8_t[]){ 0, 0 }, 2);
	for (uint32_t i = 0; i < SIM_PROCESSORS; i++)
		sim_processors[i].place = AT_SITE;
}

/* ---- Threads ---- */

static void pass(struct sim_processor *processor, uint32_t site)
{
	if (site + 1 < SITES) {
		processor->place = (uint8_t)(AT_SITE + site + 1);
	} else if (processor->saved) {
		processor->place = processor->saved;
		processor->saved = 0;
	} else {
		processor->place = AT_SITE;
	}
}

/* Checks the bytes of a site while neither the patcher nor the debugger is at work. */
static void check_effect(uint32_t site, const uint8_t *bytes)
{
	if (!patcher.step && !sim_text_is_busy() && memcmp(bytes, &sim_text.bytes[site_at(site)], ARCH_JUMP_BYTES))
		sim_broken("a change has not taken effect when it is done");
}

static void run_site(struct sim_processor *processor, uint32_t site, const uint8_t *bytes)
{
	static const uint8_t skip[] = ARCH_SKIP, breakpoint[] = ARCH_BREAKPOINT;
	if (!memcmp(bytes, nop, sizeof nop) || !memcmp(bytes, skip, sizeof skip)) {
		pass(processor, site);
		return;
	}
	if (!memcmp(bytes, breakpoint, sizeof breakpoint)) {
		processor->place = (uint8_t)(TRAPPED + site);
		processor->in_breakpoint_handler = true;
		return;
	}
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		uint8_t jump[ARCH_JUMP_BYTES];
		arch_jump(jump, sim_text_address(site_at(site)), sim_text_address(slot_at(slot)));
		if (!memcmp(bytes, jump, sizeof jump)) {
			processor->place = (uint8_t)(IN_SLOT + SITES * slot + site);
			return;
		}
	}
	sim_broken(garbled);
}

static bool run(uint32_t number, uint32_t way)
{
	struct sim_processor *processor = &sim_processors[number];
	uint8_t bytes[ARCH_JUMP_BYTES];
	uint32_t place = processor->place;
	if (place >= TRAPPED) {
		uint32_t site = place - TRAPPED;
		if (way)
			return false;
		uint64_t at = sim_text_address(site_at(site));
		uint64_t fixup = nopal_poke_trapped(patcher.pokes, patcher.count, at);
		sim_tell("processor %u leaves the breakpoint handler of site %u", number, site);
		if (!fixup && !(site == DEBUGGED && patcher.debugger))
			sim_broken("a breakpoint is met that nobody knows");
		processor->in_breakpoint_handler = false;
		pass(processor, site);
	} else if (place >= IN_SLOT) {
		uint32_t slot = (place - IN_SLOT) / SITES, site = (place - IN_SLOT) % SITES;
		if (!sim_text_fetch(processor, slot_at(slot), 2, way, SITE_WAYS, bytes))
			return false;
		sim_tell("processor %u runs code of %u in slot %u", number, bytes[0], slot);
		if (bytes[0] == 0)
			sim_broken(freed);
		else if (bytes[0] != site + 1)
			sim_broken("a processor runs another site's code");
		pass(processor, site);
	} else {
		uint32_t site = place - AT_SITE;
		if (!sim_text_fetch(processor, site_at(site), sizeof bytes, way, SITE_WAYS, bytes))
			return false;
		check_effect(site, bytes);
		sim_tell("processor %u runs %02x %02x %02x %02x %02x at site %u", number, bytes[0], bytes[1], bytes[2],
			 bytes[3], bytes[4], site);
		run_site(processor, site, bytes);
	}
	return true;
}

static bool handle_signal(uint32_t number)
{
	struct sim_processor *processor = &sim_processors[number];
	if (processor->saved || processor->in_breakpoint_handler)
		return false;
	for (uint32_t i = 0; i < SIM_PROCESSORS && !far; i++)
		if (sim_processors[i].saved)
			return false;
	sim_tell("processor %u gets a signal", number);
	processor->saved = processor->place;
	processor->place = AT_SITE;
	return true;
}

static bool is_in(uint32_t place, uint32_t slot)
{
	return place >= IN_SLOT && place < TRAPPED && (place - IN_SLOT) / SITES == slot;
}

/* ---- The patcher ---- */

static void write_code(void)
{
	for (uint32_t site = 0; site < SITES; site++)
		if (patcher.changing & 1 << site && patcher.next_slot_of[site])
			port_text_store(sim_text_address(slot_at(patcher.next_slot_of[site] - 1)),
					(uint8_t[]){ (uint8_t)(site + 1), 0 }, 2);
}

static void bytes_of(uint8_t *bytes, uint32_t site, uint32_t slot)
{
	if (slot)
		arch_jump(bytes, sim_text_address(site_at(site)), sim_text_address(slot_at(slot - 1)));
	else
		memcpy(bytes, nop, sizeof nop);
}

/* Sites that are off are switched on, one into slot `slot`, another one into another; sites that are on, off. */
static bool change(uint32_t sites, uint32_t slot)
{
	patcher.count = 0;
	for (uint32_t site = 0; site < SITES; site++) {
		if (!(sites & 1 << site))
			continue;
		uint32_t next = 0;
		if (!patcher.slot_of[site]) {
			if (patcher.slots[slot] != SLOT_FREE) {
				patcher.count = 0;
				return false;
			}
			next = slot + 1;
			slot = (slot + 1) % SLOTS;
		}
		struct nopal_poke *poke = &patcher.pokes[patcher.count++];
		*poke = (struct nopal_poke){ .site = sim_text_address(site_at(site)) };
		poke->fixup = poke->site + ARCH_JUMP_BYTES;
		bytes_of(poke->before, site, patcher.slot_of[site]);
		bytes_of(poke->after, site, next);
		patcher.next_slot_of[site] = (uint8_t)next;
	}
	sim_tell("the patcher begins with sites %u", sites);
	for (uint32_t site = 0; site < SITES; site++)
		if (sites & 1 << site && patcher.next_slot_of[site])
			patcher.slots[patcher.next_slot_of[site] - 1] = SLOT_USED;
	patcher.changing = (uint8_t)sites;
	patcher.step = 1;
	if (!with.code_late)
		write_code();
	return true;
}

static bool free_slot(uint32_t slot)
{
	if (patcher.slots[slot] != SLOT_LEFT)
		return false;
	for (uint32_t i = 0; i < SIM_PROCESSORS && !with.freed_at_once; i++)
		if (is_in(sim_processors[i].place, slot) || is_in(sim_processors[i].saved, slot))
			return false;
	sim_tell("slot %u is freed", slot);
	patcher.slots[slot] = SLOT_FREE;
	port_text_store(sim_text_address(slot_at(slot)), (uint8_t[]){ 0, 0 }, 2);
	return true;
}

static void end_change(void)
{
	if (with.code_late)
		write_code();
	for (uint32_t site = 0, i = 0; site < SITES; site++) {
		if (!(patcher.changing & 1 << site))
			continue;
		bool left_alone = patcher.pokes[i++].left_alone;
		uint32_t unused = left_alone ? patcher.next_slot_of[site] : patcher.slot_of[site];
		if (left_alone && !(site == DEBUGGED && patcher.debugger))
			sim_broken(unmade);
		if (unused)
			patcher.slots[unused - 1] = SLOT_LEFT;
		if (!left_alone)
			patcher.slot_of[site] = patcher.next_slot_of[site];
	}
	memset(patcher.pokes, 0, sizeof patcher.pokes);
	memset(patcher.next_slot_of, 0, sizeof patcher.next_slot_of);
	patcher.count = patcher.changing = patcher.step = 0;
}

/* While the patcher rests, it changes only the first byte, and does so as it should. */
static bool debug(void)
{
	if (!with.debugger)
		return false;
	static const uint8_t breakpoint[] = ARCH_BREAKPOINT;
	uint8_t bytes[ARCH_JUMP_BYTES];
	bytes_of(bytes, DEBUGGED, patcher.slot_of[DEBUGGED]);
	bool here = patcher.debugger == DEBUGGER_HERE;
	sim_tell("the debugger %s", here ? "leaves" : "comes");
	if (here && memcmp(&sim_text.bytes[site_at(DEBUGGED)], breakpoint, sizeof breakpoint))
		sim_broken(overwritten);
	port_text_store(sim_text_address(site_at(DEBUGGED)), here ? bytes : breakpoint, 1);
	port_text_synchronise();
	patcher.debugger = here ? DEBUGGER_LEAVES : DEBUGGER_HERE;
	return true;
}

/* The changes that may begin when the patcher is at rest: three sets of sites, into one or the other slot; two slots
 * are freed; the debugger comes or leaves. */
#define PATCHER_CHOICES 9

static bool patch(uint32_t choice)
{
	if (sim_text_is_busy())
		return false;
	if (!patcher.step) {
		if (patcher.debugger == DEBUGGER_LEAVES)
			patcher.debugger = DEBUGGER_AWAY;
		return choice < 6 ? change(1 + choice / 2, choice % 2) : choice < 8 ? free_slot(choice - 6) : debug();
	}
	if (choice)
		return false;
	if (patcher.step == with.step_left_out) {
		patcher.step++;
		return true;
	}
	sim_tell("step %u", patcher.step);
	if (nopal_poke_step(with.order, patcher.step, patcher.pokes, patcher.count))
		patcher.step++;
	else
		end_change();
	return true;
}

/* ---- All together ---- */

static void explore(const char *what, struct mistakes mistakes, const char *rule)
{
	static const struct site_world world = {
		.patcher = &patcher, .patcher_bytes = sizeof patcher, .patcher_choices = PATCHER_CHOICES,
		.begin = begin, .patch = patch, .handle_signal = handle_signal, .run = run,
	};
	with = mistakes;
	with.debugger |= far;
	explore_sites(what, &world, rule);
}

static const char late[] = "a change has not taken effect when it is done";
static const char unknown[] = "a breakpoint is met that nobody knows";

static void in_place(void)
{
	explore("in place", (struct mistakes){ .order = NOPAL_POKE_IN_PLACE, .debugger = true }, 0);
}

static void breakpoint(void)
{
	explore("by breakpoints", (struct mistakes){ .order = NOPAL_POKE_BREAKPOINT, .odd_sites = true }, 0);
}

static void leave_out_each(struct mistakes mistakes, const char *const rules[], uint32_t steps)
{
	for (uint32_t step = 1; step <= steps; step++) {
		char what[64];
		snprintf(what, sizeof what, "step %u left out", step);
		mistakes.step_left_out = step;
		mistakes.debugger = rules[step - 1] == overwritten;
		explore(what, mistakes, rules[step - 1]);
	}
}

static void in_place_mistakes_are_found(void)
{
	const struct mistakes none = { .order = NOPAL_POKE_IN_PLACE };
	static const char *const rules[] = { overwritten, garbled, garbled, garbled, garbled, unmade, late };
	leave_out_each(none, rules, sizeof rules / sizeof *rules);
	struct mistakes mistakes = none;
	mistakes.odd_sites = true;
	explore("first bytes that are not aligned", mistakes, garbled);
	mistakes = none;
	mistakes.code_late = true;
	explore("code written after the jump to it", mistakes, freed);
	mistakes = none;
	mistakes.freed_at_once = true;
	explore("code freed while somebody is inside", mistakes, freed);
}

static void breakpoint_mistakes_are_found(void)
{
	const struct mistakes none = { .order = NOPAL_POKE_BREAKPOINT, .odd_sites = true };
	static const char *const rules[] = { overwritten, garbled, garbled, garbled, garbled, unknown, late };
	leave_out_each(none, rules, sizeof rules / sizeof *rules);
	struct mistakes mistakes = none;
	mistakes.code_late = true;
	explore("code written after the jump to it", mistakes, freed);
}

const struct test in_place_tests[] = {
	{ "in_place", in_place },
	{ "breakpoint", breakpoint },
	{ "in_place_mistakes_are_found", in_place_mistakes_are_found },
	{ "breakpoint_mistakes_are_found", breakpoint_mistakes_are_found },
	{ 0, 0 },
};
