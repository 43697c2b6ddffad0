/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The switch of chunks: threads take free ones, fill them, hand them over, and a tool empties and frees them. A signal
 * handler that records may come anywhere, a thread may die anywhere, and another may get its memory.
 */
#include "chunks.h"

#include "port.h"
#include "rules.h"

struct world world;
struct nopal_process process;
struct nopal_context contexts[THREADS];
uint8_t events_to_come;
bool looks_late, takes_any_first;

static _Alignas(NOPAL_CHUNK_BYTES) uint8_t memory[(1 + CHUNKS_AT_MOST) * NOPAL_CHUNK_BYTES];

/* The world to explore, with its planted mistakes. */
static struct setting {
	uint32_t threads;
	uint32_t chunks;
	uint8_t events;         /* of each thread, that of a handler included */
	uint8_t signals;
	uint8_t deaths;
	bool hints_alone;       /* no actor comes between a step and its news of free chunks: fewer states */
	bool looks_late;
	bool takes_any_first;
	enum sim_weakness (*weakness_of)(enum sim_operation operation, const volatile void *at, uint64_t stored);
} with;

uint64_t port_clock(void)
{
	return ++world.clock[sim_actors.running];
}

bool nopal_wait_step(struct nopal_process *unused, struct nopal_patience *patience, uint32_t *word, uint32_t value)
{
	(void)unused;
	(void)patience;
	(void)word;
	(void)value;
	return false;
}

static void begin(void)
{
	memset(memory, 0, sizeof memory);
	memset(&world, 0, sizeof world);
	memset(contexts, 0, sizeof contexts);
	struct nopal_region *region = (struct nopal_region *)memory;
	region->chunk_count = with.chunks;
	region->freed = 1;
	region->state_offset = sizeof *region;
	region->chunk_offset = NOPAL_CHUNK_BYTES;
	process = (struct nopal_process){
		.region = region,
		.state_offset = region->state_offset,
		.chunk_offset = region->chunk_offset,
		.chunk_limit = with.chunks,
	};
	for (uint32_t chunk = 0; chunk < CHUNKS_AT_MOST; chunk++) {
		sim_place[chunk] = chunk_at(chunk);
		sim_word[chunk] = state_word(chunk);
		sim_word[CHUNKS_AT_MOST + chunk] = last_word(chunk_at(chunk));
	}
	sim_word[2 * CHUNKS_AT_MOST] = with.hints_alone ? 0 : &region->first_free;
	sim_word[2 * CHUNKS_AT_MOST + 1] = with.hints_alone ? 0 : &region->freed;
	sim_place_bytes = sizeof(struct nopal_chunk_header) + sizeof(struct nopal_resync);
	events_to_come = with.events;
	world.signals = with.signals;
	world.deaths = with.deaths;
	looks_late = with.looks_late;
	takes_any_first = with.takes_any_first;
	sim_weakness_of = with.weakness_of;
	sim_stops_alone = with.signals;
	sim_actors_begin();
	for (uint32_t thread = 0; thread < THREADS; thread++) {
		contexts[thread].thread = contexts[thread].begin = thread + 1;
		contexts[thread].process = 1;
		if (thread < with.threads)
			sim_actor_begin(thread, live);
		else
			world.has_ended[thread] = true;
	}
	sim_actor_begin(TOOL, collect);
}

static bool go_on(uint32_t actor)
{
	if (!sim_actor[actor].stack_pointer)
		return false;
	sim_tell("%s %u: %s", actor == TOOL ? "tool" : "thread", actor,
		 sim_actor[actor].before ? sim_actor[actor].before : "begins");
	sim_actor_go_on(actor);
	return true;
}

/* If threads are equal, the first is interrupted or dies. Its follower has signals blocked while it begins, and here
 * throughout. */
static bool be_interrupted(uint32_t thread)
{
	struct sim_actor *actor = &sim_actor[thread];
	if (!world.signals || thread || world.life[thread] || !actor->before || world.events[thread] == EVENTS)
		return false;
	world.signals--;
	sim_tell("thread %u gets a signal before %s", thread, actor->before);
	actor->on_signal = handle_signal;
	sim_actor_go_on(thread);
	return true;
}

static bool die(uint32_t thread)
{
	if (!world.deaths || thread || !sim_actor[thread].before)
		return false;
	world.deaths--;
	sim_tell("thread %u dies before %s", thread, sim_actor[thread].before);
	sim_actor_kill(thread);
	world.has_ended[thread + THREADS * world.life[thread]] = true;
	return true;
}

static bool be_followed(uint32_t thread)
{
	if (!with.deaths || sim_actor[thread].stack_pointer || world.life[thread] || thread >= with.threads ||
	    world.events[thread] == EVENTS || world.is_over)
		return false;
	sim_tell("another thread gets the memory of thread %u", thread);
	world.life[thread]++;
	sim_actor_begin(thread, live_in_its_memory);
	sim_actor_go_on(thread);
	return true;
}

static bool take(uint32_t choice)
{
	uint32_t actor = choice % SIM_ACTORS;
	for (uint32_t other = 0; other < SIM_ACTORS; other++)
		if (sim_actor[other].alone && other != actor)
			return false;
	switch (choice / SIM_ACTORS) {
	case 0:
		return go_on(actor);
	case 1:
		return actor != TOOL && be_interrupted(actor);
	case 2:
		return actor != TOOL && die(actor);
	default:
		return actor != TOOL && be_followed(actor);
	}
}

/* All actors have ended. */
static bool is_settled(void)
{
	for (uint32_t thread = 0; thread < THREADS; thread++)
		if (world.stored[thread] & ~world.found[thread]) {
			sim_broken("an event is lost");
			return false;
		}
	for (uint32_t chunk = 0; chunk < with.chunks; chunk++)
		if (*state_word(chunk) != NOPAL_CHUNK_FREE) {
			sim_broken("a chunk is never free again");
			return false;
		}
	return true;
}

static void explore(const char *what, struct setting setting, const char *rule)
{
	static struct sim_part parts[SIM_ACTORS + THREADS + 2 * CHUNKS_AT_MOST + 4];
	uint32_t count = 0;
	with = setting;
	begin();
	for (uint32_t actor = 0; actor < SIM_ACTORS; actor++)
		if (sim_actor[actor].stack_pointer)
			parts[count++] = (struct sim_part){ &sim_actor[actor], sizeof *sim_actor, 0 };
	for (uint32_t thread = 0; thread < with.threads; thread++)
		parts[count++] = (struct sim_part){ &contexts[thread], NOPAL_CONTEXT_SLOTS, 0 };
	for (uint32_t chunk = 0; chunk < with.chunks; chunk++) {
		parts[count++] = (struct sim_part){ chunk_at(chunk), sim_place_bytes, 0 };
		parts[count++] = (struct sim_part){ last_word(chunk_at(chunk)), 8, 0 };
	}
	parts[count++] = (struct sim_part){ state_word(0), 4 * with.chunks, 0 };
	parts[count++] = (struct sim_part){ &process.region->first_free, 8, 0 };
	parts[count++] = (struct sim_part){ &world, sizeof world, 0 };
	parts[count++] = (struct sim_part){ &sim_actors, sizeof sim_actors, 0 };
	const struct sim_exploration exploration = {
		.parts = parts, .part_count = count, .choices = 4 * SIM_ACTORS, .deep = true,
		.begin = begin, .take = take, .may_rest = is_settled,
	};
	expect(what, &exploration, rule);
}

/* ---- As it is ---- */

static void chunks_go_round(void)
{
	explore("3 threads, 2 chunks",
		(struct setting){ .threads = 3, .chunks = 2, .events = 2, .hints_alone = !far }, 0);
	explore("2 threads, 2 chunks, and what they tell of free ones",
		(struct setting){ .threads = 2, .chunks = 2, .events = 2 }, 0);
	explore("2 threads, 1 chunk, and what they tell of free ones",
		(struct setting){ .threads = 2, .chunks = 1, .events = 3 }, 0);
	explore("1 thread, 2 chunks, a death", (struct setting){ .threads = 1, .chunks = 2, .events = 2, .deaths = 1 }, 0);
	explore("2 threads, 1 chunk, a death", (struct setting){ .threads = 2, .chunks = 1, .events = 1, .deaths = 1 }, 0);
	if (far) {
		explore("3 threads, 1 chunk, a death",
			(struct setting){ .threads = 3, .chunks = 1, .events = 1, .deaths = 1 }, 0);
		explore("2 threads, 2 chunks, a death",
			(struct setting){ .threads = 2, .chunks = 2, .events = 2, .deaths = 1 }, 0);
	}
}

static void chunks_go_round_with_signals(void)
{
	explore("1 thread, 3 chunks, a signal",
		(struct setting){ .threads = 1, .chunks = 3, .events = 4, .signals = 1 }, 0);
	explore("2 threads, 2 chunks, a signal",
		(struct setting){ .threads = 2, .chunks = 2, .events = 2, .signals = 1 }, 0);
	explore("1 thread, 2 chunks, a signal and a death",
		(struct setting){ .threads = 1, .chunks = 2, .events = 2, .signals = 1, .deaths = 1 }, 0);
	if (far) {
		explore("3 threads, 2 chunks, a signal",
			(struct setting){ .threads = 3, .chunks = 2, .events = 1, .signals = 1 }, 0);
		explore("2 threads, 3 chunks, a signal",
			(struct setting){ .threads = 2, .chunks = 3, .events = 2, .signals = 1 }, 0);
	}
}

/* ---- With mistakes: an operation is known by its effect on a chunk, and by its actor ---- */

static bool makes(enum sim_operation operation, const volatile void *at, uint64_t stored, uint32_t state, bool by_tool)
{
	bool of_state = at >= (void *)state_word(0) && at < (void *)state_word(CHUNKS_AT_MOST);
	return of_state && operation != SIM_LOAD && (stored & NOPAL_CHUNK_STATE_MASK) == state &&
	       (sim_actors.running == TOOL) == by_tool;
}

static enum sim_weakness taken_unordered(enum sim_operation operation, const volatile void *at, uint64_t stored)
{
	return makes(operation, at, stored, NOPAL_CHUNK_OWNED, false) ? SIM_RELAXED : SIM_SOUND;
}

static enum sim_weakness taken_unseen(enum sim_operation operation, const volatile void *at, uint64_t stored)
{
	return makes(operation, at, stored, NOPAL_CHUNK_OWNED, false) ? SIM_CARELESS : SIM_SOUND;
}

static enum sim_weakness handed_over_unordered(enum sim_operation operation, const volatile void *at, uint64_t stored)
{
	return makes(operation, at, stored, NOPAL_CHUNK_FULL, false) ? SIM_RELAXED : SIM_SOUND;
}

static enum sim_weakness looked_at_unordered(enum sim_operation operation, const volatile void *at, uint64_t stored)
{
	(void)at;
	(void)stored;
	return operation == SIM_LOAD && sim_actors.running == TOOL ? SIM_RELAXED : SIM_SOUND;
}

static enum sim_weakness freed_unordered(enum sim_operation operation, const volatile void *at, uint64_t stored)
{
	return makes(operation, at, stored, NOPAL_CHUNK_FREE, true) ? SIM_RELAXED : SIM_SOUND;
}

static enum sim_weakness given_back_unordered(enum sim_operation operation, const volatile void *at, uint64_t stored)
{
	return makes(operation, at, stored, NOPAL_CHUNK_FREE, false) ? SIM_RELAXED : SIM_SOUND;
}

static enum sim_weakness abandoned_unseen(enum sim_operation operation, const volatile void *at, uint64_t stored)
{
	return operation == SIM_COMPARE_EXCHANGE && makes(operation, at, stored, NOPAL_CHUNK_FULL, false) ?
		       SIM_CARELESS :
		       SIM_SOUND;
}

static const char read_too_soon[] = "memory is read that somebody else may be writing";
static const char written_too_soon[] = "memory is written that somebody else may be using";

static void chunk_mistakes_are_found(void)
{
	const struct setting plain = { .threads = 2, .chunks = 2, .events = 2 };
	static const struct {
		const char *what;
		enum sim_weakness (*weakness_of)(enum sim_operation operation, const volatile void *at, uint64_t stored);
		const char *rule;
	} mistakes[] = {
		{ "a thread takes a chunk without acquire", taken_unordered, written_too_soon },
		{ "a thread takes a chunk without a look", taken_unseen, written_too_soon },
		{ "a thread hands a chunk over without release", handed_over_unordered, read_too_soon },
		{ "the tool looks at chunks without acquire", looked_at_unordered, read_too_soon },
		{ "the tool frees a chunk without release", freed_unordered, written_too_soon },
	};
	for (uint32_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
		struct setting setting = plain;
		setting.weakness_of = mistakes[i].weakness_of;
		explore(mistakes[i].what, setting, mistakes[i].rule);
	}
	struct setting setting = plain;
	setting.signals = 1;
	setting.weakness_of = given_back_unordered;
	explore("a thread gives a chunk back without release", setting, written_too_soon);
	setting = plain;
	setting.signals = 1;
	setting.looks_late = true;
	explore("the tool takes over a chunk that is another's by now", setting, read_too_soon);
	setting = (struct setting){ .threads = 1, .chunks = 3, .events = 3, .signals = 1, .takes_any_first = true };
	explore("the tool takes any chunk of a new thread first", setting, "a thread's chunks come out of order");
	setting = (struct setting){ .threads = 2, .chunks = 1, .events = 1, .deaths = 1, .weakness_of = abandoned_unseen };
	explore("a thread hands over what may be another's", setting, read_too_soon);
}

const struct test chunk_tests[] = {
	{ "chunks_go_round", chunks_go_round },
	{ "chunks_go_round_with_signals", chunks_go_round_with_signals },
	{ "chunk_mistakes_are_found", chunk_mistakes_are_found },
	{ 0, 0 },
};
