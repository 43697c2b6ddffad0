/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Functions whose first two instructions a jump displaces: inserted and removed while all is stopped, switched while
 * all run. A thunk wraps the call, runs the displaced instructions and goes on behind the window.
 *
 * Up to three processors call function 0, function 1, and function 0 again, for ever; a signal handler may come at any
 * instruction, and calls function 1. One patcher inserts, switches and removes either site, or both at once, and frees
 * thunks that nobody can get to, whose room the other site may get. While it rests, a debugger may put a breakpoint on
 * function 1 and take it away again.
 */
#include "poke_protocol.h"
#include "sites.h"

#define SITES 2
#define SLOTS 2
#define WINDOW 6

static const uint8_t switched_on[ARCH_SWITCH_BYTES] = ARCH_NOP_SHORT;
static const uint8_t switched_off[ARCH_SWITCH_BYTES] = { 0xeb, 0x10 };
static const uint8_t breakpoint[] = ARCH_BREAKPOINT;

static const char torn[] = "a processor runs bytes that are no switch";

/* The world to explore, with its planted mistakes. */
static struct world {
	uint32_t threads;
	uint32_t slots;         /* room for thunks */
	uint32_t signals;       /* how many threads may be in a signal handler at once */
	bool debugger;
	enum nopal_poke_order order;    /* in which `step_left_out` is */
	uint32_t step_left_out;
	bool code_late;         /* the thunk is written when the jump to it stands already */
	bool freed_at_once;     /* without a check that no thread can get there */
	bool saved_unseen;      /* the addresses in signal frames are not checked */
	bool returns_unseen;    /* return addresses of wrapped frames are not searched */
	bool stale;             /* processors do not synchronise after a stop */
	bool odd_thunks;        /* switches are not aligned */
} with;

enum { SLOT_FREE, SLOT_USED, SLOT_LEFT };
enum { DEBUGGER_AWAY, DEBUGGER_HERE, DEBUGGER_LEAVES };
#define DEBUGGED (SITES - 1)

/* Freeing is no order of core, but is done in such steps. */
#define FREE 100

static struct {
	uint8_t step;                   /* 0: at rest */
	uint8_t order;
	uint8_t changing;               /* a bit for each site; the slot, where one is freed */
	uint8_t debugger;
	uint8_t slot_of[SITES];         /* where a site leads to, plus 1; 0: it is not inserted */
	uint8_t next_slot_of[SITES];
	uint8_t slots[SLOTS];
	bool off[SLOTS];
	struct nopal_poke pokes[SITES];
	uint32_t count;
} patcher;

static uint32_t site_at(uint32_t site) { return 8 * site; }
static uint32_t slot_at(uint32_t slot) { return 16 + 8 * slot + with.odd_thunks; }

/* push %rbx; mov $0x64 + site, %ebx */
static void original(uint8_t bytes[WINDOW], uint32_t site)
{
	memcpy(bytes, (uint8_t[]){ 0x53, 0xbb, (uint8_t)(0x64 + site), 0, 0, 0 }, WINDOW);
}

/* The bytes at a site that leads to slot `slot` - 1, or to none if that is 0. */
static void bytes_of(uint8_t bytes[ARCH_JUMP_BYTES], uint32_t site, uint32_t slot)
{
	uint8_t before[WINDOW];
	original(before, site);
	if (slot)
		arch_jump(bytes, sim_text_address(site_at(site)), sim_text_address(slot_at(slot - 1)));
	else
		memcpy(bytes, before, ARCH_JUMP_BYTES);
}

/* The place of a thread: in front of an instruction of function `site`, or of one in the slot that is its thunk. */
enum { FIRST = 1, SECOND = FIRST + SITES, REST = SECOND + SITES, IN_SLOT = REST + SITES };
enum { SWITCH, ENTER, CALL, BODY_FIRST, BODY_SECOND, LEAVE, SLOT_PLACES };

static uint8_t in_slot(uint32_t slot, uint32_t site, uint32_t place)
{
	return (uint8_t)(IN_SLOT + (slot * SITES + site) * SLOT_PLACES + place);
}

static uint32_t site_of(uint32_t place)
{
	return place < IN_SLOT ? (place - FIRST) % SITES : (place - IN_SLOT) / SLOT_PLACES % SITES;
}

/* A call under way, and the one that a signal handler has interrupted, in the processor's more[]. */
struct frame {
	uint8_t done;           /* a bit for each displaced instruction that has run */
	uint8_t wrapped;        /* the slot that it will return to, plus 1; its own return address is in the mirror */
	uint8_t entered;        /* an entry is recorded and no exit */
};
_Static_assert(2 * sizeof(struct frame) <= sizeof sim_processors->more, "two frames");

static struct frame *frame_of(struct sim_processor *processor)
{
	return (struct frame *)processor->more;
}

static void begin(void)
{
	uint8_t bytes[WINDOW];
	sim_text_begin();
	memset(&patcher, 0, sizeof patcher);
	for (uint32_t site = 0; site < SITES; site++) {
		original(bytes, site);
		sim_text_lay(site_at(site), bytes, sizeof bytes);
	}
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		sim_text_lay(slot_at(slot), (uint8_t[4]){ 0 }, 4);
	for (uint32_t i = 0; i < SIM_PROCESSORS; i++)
		sim_processors[i].place = FIRST;
}

/* ---- Threads ---- */

static void run_displaced(struct frame *frame, uint8_t instruction)
{
	if (frame->done & instruction)
		sim_broken("an instruction of the function runs twice");
	frame->done |= instruction;
}

static void return_to_caller(struct sim_processor *processor, uint32_t site)
{
	struct frame *frames = frame_of(processor);
	if (frames[0].entered)
		sim_broken("a call returns past its thunk");
	frames[0] = (struct frame){ 0 };
	if (site + 1 < SITES) {
		processor->place = (uint8_t)(FIRST + site + 1);
	} else if (processor->saved) {
		processor->place = processor->saved;
		processor->saved = 0;
		frames[0] = frames[1];
		frames[1] = (struct frame){ 0 };
	} else {
		processor->place = FIRST;
	}
}

static void run_first(struct sim_processor *processor, uint32_t site, const uint8_t *bytes)
{
	uint8_t expected[ARCH_JUMP_BYTES];
	if (!memcmp(bytes, breakpoint, sizeof breakpoint) && site == DEBUGGED && patcher.debugger) {
		/* The debugger lets the thread run the instruction that it has hidden. */
		bytes_of(expected, site, patcher.slot_of[site]);
		bytes = expected;
	}
	if (bytes[0] == 0x53) {
		run_displaced(frame_of(processor), 1);
		processor->place = (uint8_t)(SECOND + site);
		return;
	}
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		uint8_t jump[ARCH_JUMP_BYTES];
		bytes_of(jump, site, slot + 1);
		if (!memcmp(bytes, jump, sizeof jump)) {
			processor->place = in_slot(slot, site, SWITCH);
			return;
		}
	}
	sim_broken(garbled);
}

static bool run_in_slot(struct sim_processor *processor, uint32_t way)
{
	uint8_t bytes[4];
	struct frame *frame = frame_of(processor);
	uint32_t place = (processor->place - IN_SLOT) % SLOT_PLACES, site = site_of(processor->place);
	uint32_t slot = (processor->place - IN_SLOT) / SLOT_PLACES / SITES;
	bool at_switch = place == SWITCH;
	if (!sim_text_fetch(processor, slot_at(slot) + (at_switch ? 0 : 2), at_switch ? 4 : 2, way, SITE_WAYS,
			    at_switch ? bytes : bytes + 2))
		return false;
	sim_tell("processor %ld runs instruction %u of function %u's thunk in slot %u", processor - sim_processors, place,
		 site, slot);
	if (bytes[2] == 0)
		sim_broken(freed);
	else if (bytes[2] != site + 1)
		sim_broken("a processor runs another site's code");
	uint32_t next = place + 1;
	switch (place) {
	case SWITCH:
		if (!memcmp(bytes, switched_off, sizeof switched_off))
			next = BODY_FIRST;
		else if (memcmp(bytes, switched_on, sizeof switched_on))
			sim_broken(torn);
		break;
	case ENTER:
		frame->entered = 1;
		break;
	case CALL:
		frame->wrapped = (uint8_t)(slot + 1);
		break;
	case BODY_FIRST:
		run_displaced(frame, 1);
		break;
	case BODY_SECOND:
		run_displaced(frame, 2);
		processor->place = (uint8_t)(REST + site);
		return true;
	case LEAVE:
		frame->entered = 0;
		frame->wrapped = 0;
		return_to_caller(processor, site);
		return true;
	}
	processor->place = in_slot(slot, site, next);
	return true;
}

static bool run(uint32_t number, uint32_t way)
{
	struct sim_processor *processor = &sim_processors[number];
	uint8_t bytes[ARCH_JUMP_BYTES], expected[WINDOW];
	if (number >= with.threads || processor->stopped)
		return false;
	if (processor->place >= IN_SLOT)
		return run_in_slot(processor, way);
	uint32_t site = site_of(processor->place), stage = (processor->place - FIRST) / SITES;
	if (stage == 2) {
		struct frame *frame = frame_of(processor);
		if (way)
			return false;
		sim_tell("processor %u ends function %u", number, site);
		if (frame->done != 3)
			sim_broken("an instruction of the function has not run");
		if (frame->wrapped)
			processor->place = in_slot(frame->wrapped - 1, site, LEAVE);
		else
			return_to_caller(processor, site);
		return true;
	}
	if (!sim_text_fetch(processor, site_at(site) + stage, sizeof bytes, way, SITE_WAYS, bytes))
		return false;
	sim_tell("processor %u runs %02x %02x %02x %02x %02x at function %u + %u", number, bytes[0], bytes[1], bytes[2],
		 bytes[3], bytes[4], site, stage);
	if (stage == 0) {
		run_first(processor, site, bytes);
		return true;
	}
	original(expected, site);
	if (memcmp(bytes, expected + 1, sizeof bytes))
		sim_broken(garbled);
	run_displaced(frame_of(processor), 2);
	processor->place = (uint8_t)(REST + site);
	return true;
}

static bool handle_signal(uint32_t number)
{
	struct sim_processor *processor = &sim_processors[number];
	if (number >= with.threads || processor->saved || processor->stopped)
		return false;
	uint32_t signals = 0;
	for (uint32_t i = 0; i < SIM_PROCESSORS; i++)
		signals += !!sim_processors[i].saved;
	if (signals >= with.signals)
		return false;
	sim_tell("processor %u gets a signal", number);
	processor->saved = processor->place;
	processor->place = FIRST + SITES - 1;
	frame_of(processor)[1] = frame_of(processor)[0];
	frame_of(processor)[0] = (struct frame){ 0 };
	return true;
}

/* ---- Where they are ---- */

static uint64_t address_of(uint32_t place)
{
	static const uint8_t distance[] = { 0, 1, WINDOW };
	if (place < IN_SLOT)
		return sim_text_address(site_at(site_of(place)) + distance[(place - FIRST) / SITES]);
	return sim_text_address(slot_at((place - IN_SLOT) / SLOT_PLACES / SITES) + (place - IN_SLOT) % SLOT_PLACES);
}

/* Four places for each: where it runs, the address in the signal frame, and the return addresses of both frames. Absent
 * places have address 0. */
static bool place_of(uint32_t number, struct port_place *place)
{
	if (number >= 4 * SIM_PROCESSORS)
		return false;
	struct sim_processor *processor = &sim_processors[number / 4];
	uint32_t wrapped = number % 4 < 2 ? 0 : frame_of(processor)[number % 4 - 2].wrapped;
	*place = (struct port_place){ 0 };
	switch (number % 4) {
	case 0:
		place->kind = PORT_PLACE_RUNNING;
		place->address = address_of(processor->place);
		break;
	case 1:
		place->kind = PORT_PLACE_SAVED;
		if (processor->saved && !with.saved_unseen)
			place->address = address_of(processor->saved);
		break;
	default:
		place->kind = PORT_PLACE_RETURN;
		if (wrapped && !with.returns_unseen)
			place->address = sim_text_address(slot_at(wrapped - 1) + LEAVE);
	}
	return true;
}

static void move(uint32_t number, uint64_t address)
{
	struct sim_processor *processor = &sim_processors[number / 4];
	if (number % 4 >= 2) {
		struct frame *frame = &frame_of(processor)[number % 4 - 2];
		sim_tell("a frame of processor %u is unwrapped", number / 4);
		frame->wrapped = frame->entered = 0;
		return;
	}
	uint32_t at = (uint32_t)(address - sim_text_address(slot_at(0)));
	processor->place = in_slot(at / 8, site_of(processor->place), at % 8);
	sim_tell("processor %u goes on at instruction %u of slot %u", number / 4, at % 8, at / 8);
}

/* ---- The patcher ---- */

static void write_thunks(void)
{
	for (uint32_t site = 0; site < SITES; site++)
		if (patcher.order == NOPAL_POKE_INSERT && patcher.changing & 1 << site) {
			uint64_t slot = sim_text_address(slot_at(patcher.next_slot_of[site] - 1));
			port_text_store(slot, switched_on, sizeof switched_on);
			port_text_store(slot + 2, (uint8_t[]){ (uint8_t)(site + 1), 0 }, 2);
		}
}

static struct nopal_poke *add_poke(uint32_t site, uint32_t next)
{
	struct nopal_poke *poke = &patcher.pokes[patcher.count++];
	*poke = (struct nopal_poke){ .site = sim_text_address(site_at(site)) };
	bytes_of(poke->before, site, patcher.slot_of[site]);
	bytes_of(poke->after, site, next);
	return poke;
}

static void start(enum nopal_poke_order order, uint32_t changing)
{
	patcher.order = (uint8_t)order;
	patcher.changing = (uint8_t)changing;
	patcher.step = 1;
}

static uint32_t first_free(uint32_t slot)
{
	while (slot < with.slots && patcher.slots[slot] != SLOT_FREE)
		slot++;
	return slot;
}

static bool insert(uint32_t sites)
{
	uint32_t slot = first_free(0);
	for (uint32_t site = 0, next = slot; site < SITES; site++)
		if (sites & 1 << site) {
			if (patcher.slot_of[site] || next == with.slots)
				return false;
			next = first_free(next + 1);
		}
	sim_tell("the patcher inserts sites %u", sites);
	for (uint32_t site = 0; site < SITES; site++) {
		if (!(sites & 1 << site))
			continue;
		struct nopal_poke *poke = add_poke(site, slot + 1);
		poke->window = WINDOW;
		poke->body = sim_text_address(slot_at(slot) + BODY_FIRST);
		poke->displaced[1] = BODY_SECOND - BODY_FIRST;
		patcher.next_slot_of[site] = (uint8_t)(slot + 1);
		patcher.slots[slot] = SLOT_USED;
		patcher.off[slot] = false;
		slot = first_free(slot);
	}
	start(NOPAL_POKE_INSERT, sites);
	if (!with.code_late)
		write_thunks();
	return true;
}

static bool take_out(uint32_t sites)
{
	for (uint32_t site = 0; site < SITES; site++)
		if (sites & 1 << site && !patcher.slot_of[site])
			return false;
	sim_tell("the patcher removes sites %u", sites);
	for (uint32_t site = 0; site < SITES; site++) {
		if (!(sites & 1 << site))
			continue;
		struct nopal_poke *poke = add_poke(site, 0);
		poke->code = sim_text_address(slot_at(patcher.slot_of[site] - 1));
		poke->code_end = poke->code + 8;
	}
	start(NOPAL_POKE_REMOVE, sites);
	return true;
}

static bool throw_switch(uint32_t slot)
{
	if (patcher.slots[slot] != SLOT_USED)
		return false;
	sim_tell("slot %u is switched %s", slot, patcher.off[slot] ? "on" : "off");
	patcher.off[slot] = !patcher.off[slot];
	struct nopal_poke poke = { .site = sim_text_address(slot_at(slot)) };
	memcpy(poke.after, patcher.off[slot] ? switched_off : switched_on, ARCH_SWITCH_BYTES);
	nopal_poke(NOPAL_POKE_SWITCH, &poke, 1);
	return true;
}

static bool begin_to_free(uint32_t slot)
{
	if (patcher.slots[slot] != SLOT_LEFT)
		return false;
	sim_tell("the patcher looks whether slot %u can be freed", slot);
	start(FREE, slot);
	return true;
}

static bool free_step(uint32_t step, uint32_t slot)
{
	uint64_t address = sim_text_address(slot_at(slot));
	switch (step) {
	case 1:
		port_text_stop();
		return true;
	case 2:
		if (with.freed_at_once || !nopal_poke_in_use(address, address + 8)) {
			sim_tell("slot %u is freed", slot);
			patcher.slots[slot] = SLOT_FREE;
			patcher.off[slot] = false;
			port_text_store(address, (uint8_t[]){ 0, 0 }, 2);
			port_text_store(address + 2, (uint8_t[]){ 0, 0 }, 2);
		}
		return true;
	case 3:
		port_text_go();
		return true;
	default:
		return false;
	}
}

/* Open calls, however long they go on, do not return to the thunk of a removed site. */
static void check_unwrapped(void)
{
	struct port_place place;
	for (uint32_t number = 0; place_of(number, &place); number++)
		for (uint32_t i = 0; i < patcher.count; i++)
			if (place.kind == PORT_PLACE_RETURN && !patcher.pokes[i].left_alone &&
			    place.address >= patcher.pokes[i].code && place.address < patcher.pokes[i].code_end)
				sim_broken("a call that has begun holds the code of a removed site");
}

static void end_change(void)
{
	if (with.code_late)
		write_thunks();
	for (uint32_t i = 0; i < SIM_PROCESSORS; i++)
		if (sim_processors[i].stopped)
			sim_broken("a processor is stopped for ever");
	for (uint32_t site = 0, i = 0; site < SITES && patcher.order != FREE; site++) {
		if (!(patcher.changing & 1 << site))
			continue;
		bool left_alone = patcher.pokes[i++].left_alone;
		uint32_t unused = left_alone ? patcher.next_slot_of[site] : patcher.slot_of[site];
		if (left_alone && patcher.order == NOPAL_POKE_REMOVE && !(site == DEBUGGED && patcher.debugger))
			sim_broken(unmade);
		if (unused)
			patcher.slots[unused - 1] = SLOT_LEFT;
		if (!left_alone)
			patcher.slot_of[site] = patcher.next_slot_of[site];
	}
	memset(patcher.pokes, 0, sizeof patcher.pokes);
	memset(patcher.next_slot_of, 0, sizeof patcher.next_slot_of);
	patcher.count = patcher.changing = patcher.order = patcher.step = 0;
}

/* While the patcher rests, it changes only the first byte, and does so as it should. */
static bool debug(void)
{
	uint8_t bytes[ARCH_JUMP_BYTES];
	if (!with.debugger)
		return false;
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

/* The changes that may begin when the patcher is at rest: three sets of sites are inserted or removed; two slots are
 * switched, or freed; the debugger comes or leaves. */
#define PATCHER_CHOICES 11

static bool begin_change(uint32_t choice)
{
	if (patcher.debugger == DEBUGGER_LEAVES)
		patcher.debugger = DEBUGGER_AWAY;
	return choice < 3  ? insert(1 + choice) :
	       choice < 6  ? take_out(1 + choice - 3) :
	       choice < 8  ? throw_switch(choice - 6) :
	       choice < 10 ? begin_to_free(choice - 8) :
			     debug();
}

static bool patch(uint32_t choice)
{
	if (sim_text_is_busy())
		return false;
	if (!patcher.step)
		return begin_change(choice);
	if (choice)
		return false;
	bool left_out = patcher.order == with.order && patcher.step == with.step_left_out;
	sim_tell("step %u%s", patcher.step, left_out ? " is left out" : "");
	if (patcher.order == NOPAL_POKE_REMOVE && patcher.step == 5)
		check_unwrapped();
	if (left_out || (patcher.order == FREE ?
				 free_step(patcher.step, patcher.changing) :
				 nopal_poke_step(patcher.order, patcher.step, patcher.pokes, patcher.count)))
		patcher.step++;
	else
		end_change();
	return true;
}

/* ---- All together ---- */

static void explore(const char *what, struct world world, const char *rule)
{
	static const struct site_world sites = {
		.patcher = &patcher, .patcher_bytes = sizeof patcher, .patcher_choices = PATCHER_CHOICES,
		.begin = begin, .patch = patch, .handle_signal = handle_signal, .run = run,
	};
	with = world;
	sim_text_place = place_of;
	sim_text_move = move;
	sim_text_goes_on_stale = with.stale;
	explore_sites(what, &sites, rule);
}

static const char held[] = "a call that has begun holds the code of a removed site";
static const char stopped[] = "a processor is stopped for ever";

static void one_thunk(void)
{
	explore("3 threads, 2 sites, room for 1 thunk", (struct world){ .threads = 3, .slots = 1, .signals = 1 }, 0);
	if (far) {
		explore("and signals everywhere", (struct world){ .threads = 3, .slots = 1, .signals = 3 }, 0);
		explore("and a debugger",
			(struct world){ .threads = 3, .slots = 1, .signals = 1, .debugger = true }, 0);
	}
}

static void two_thunks(void)
{
	explore("2 threads, 2 sites, room for 2 thunks", (struct world){ .threads = 2, .slots = 2 }, 0);
	if (far) {
		explore("and signals", (struct world){ .threads = 2, .slots = 2, .signals = 1 }, 0);
		explore("3 threads, 2 sites, room for 2 thunks", (struct world){ .threads = 3, .slots = 2 }, 0);
	}
}

static const struct world small = { .threads = 2, .slots = 1, .signals = 1 };

static void leave_out_each(enum nopal_poke_order order, const char *const rules[5])
{
	struct world world = small;
	world.order = order;
	for (uint32_t step = 1; step <= 5; step++) {
		char what[64];
		snprintf(what, sizeof what, "step %u left out", step);
		world.step_left_out = step;
		world.debugger = rules[step - 1] == overwritten;
		explore(what, world, rules[step - 1]);
	}
}

static void insertion_mistakes_are_found(void)
{
	static const char *const rules[] = { freed, overwritten, garbled, unmade, stopped };
	struct world world;
	leave_out_each(NOPAL_POKE_INSERT, rules);
	world = small;
	world.code_late = true;
	explore("thunk written after the jump to it", world, freed);
	world = small;
	world.saved_unseen = true;
	explore("signal frames not looked at", world, garbled);
	world = small;
	world.stale = true;
	explore("no synchronising after a stop", world, garbled);
}

static void removal_mistakes_are_found(void)
{
	static const char *const rules[] = { garbled, overwritten, freed, held, stopped };
	struct world world;
	leave_out_each(NOPAL_POKE_REMOVE, rules);
	world = small;
	world.freed_at_once = true;
	explore("thunk freed while somebody is inside", world, freed);
	world = small;
	world.returns_unseen = true;
	explore("return addresses not looked for", world, freed);
}

static void switch_mistakes_are_found(void)
{
	struct world world = small;
	world.odd_thunks = true;
	explore("a switch that is not aligned", world, torn);
}

const struct test stopped_tests[] = {
	{ "one_thunk", one_thunk },
	{ "two_thunks", two_thunks },
	{ "insertion_mistakes_are_found", insertion_mistakes_are_found },
	{ "removal_mistakes_are_found", removal_mistakes_are_found },
	{ "switch_mistakes_are_found", switch_mistakes_are_found },
	{ 0, 0 },
};
