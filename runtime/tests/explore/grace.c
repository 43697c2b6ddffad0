/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * When the disconnection of a probe is done, the probe runs nowhere any more, so its data may be freed.
 */
#include "grace.h"

#include "rules.h"

static struct setting {
	uint8_t passes, connections;
	bool waits_once;
	enum sim_weakness (*weakness_of)(enum sim_operation operation, const volatile void *at, uint64_t stored);
} with;

static void begin(void)
{
	memset(sim_place, 0, sizeof sim_place);
	memset(sim_word, 0, sizeof sim_word);
	sim_place[0] = &data;
	sim_place_bytes = sizeof data;
	sim_word[0] = &grace_counters()[0];
	sim_word[1] = &grace_counters()[1];
	sim_word[2] = grace_phase();
	sim_word[3] = &connected;
	grace_counters()[0] = grace_counters()[1] = 0;
	*grace_phase() = 0;
	*grace_within() = 0;
	connected = 0;
	passes = with.passes;
	connections = with.connections;
	waits_once = with.waits_once;
	sim_weakness_of = with.weakness_of;
	sim_stops_alone = false;
	sim_actors_begin();
	for (uint32_t passer = 0; passer < PASSERS; passer++)
		sim_actor_begin(passer, pass_marker);
	sim_actor_begin(DISCONNECTOR, connect_and_disconnect);
}

static bool take(uint32_t actor)
{
	if (!sim_actor[actor].stack_pointer)
		return false;
	sim_tell("%s %u: %s", actor == DISCONNECTOR ? "disconnector" : "passer", actor,
		 sim_actor[actor].before ? sim_actor[actor].before : "begins");
	sim_actor_go_on(actor);
	return true;
}

static bool all_have_ended(void)
{
	return !grace_counters()[0] && !grace_counters()[1];
}

static void explore(const char *what, struct setting setting, const char *rule)
{
	const struct sim_part parts[] = {
		{ &sim_actor[0], sizeof *sim_actor, 1 },
		{ &sim_actor[1], sizeof *sim_actor, 2 },
		{ &sim_actor[DISCONNECTOR], sizeof *sim_actor, 0 },
		{ &sim_actors, sizeof sim_actors, 0 },
		{ grace_counters(), 2 * sizeof *grace_counters(), 0 },
		{ grace_phase(), sizeof *grace_phase(), 0 },
		{ grace_within(), sizeof *grace_within(), 0 },
		{ &connected, sizeof connected, 0 },
	};
	const struct sim_exploration exploration = {
		.parts = parts, .part_count = sizeof parts / sizeof *parts, .choices = PASSERS + 1, .deep = true,
		.begin = begin, .take = take, .may_rest = all_have_ended,
	};
	with = setting;
	expect(what, &exploration, rule);
}

static void disconnecting_waits(void)
{
	explore("2 threads pass a marker twice", (struct setting){ .passes = 2, .connections = 1 }, 0);
	explore("a probe is connected again", (struct setting){ .passes = 2, .connections = 2 }, 0);
	if (far)
		explore("2 threads pass it 3 times", (struct setting){ .passes = 3, .connections = 2 }, 0);
}

static enum sim_weakness ended_unordered(enum sim_operation operation, const volatile void *at, uint64_t stored)
{
	(void)at;
	(void)stored;
	return operation == SIM_ADDITION && sim_actors.running != DISCONNECTOR ? SIM_RELAXED : SIM_SOUND;
}

static enum sim_weakness looked_at_unordered(enum sim_operation operation, const volatile void *at, uint64_t stored)
{
	(void)at;
	(void)stored;
	return operation == SIM_LOAD && sim_actors.running == DISCONNECTOR ? SIM_RELAXED : SIM_SOUND;
}

static void grace_mistakes_are_found(void)
{
	static const char rule[] = "memory is written that somebody else may be using";
	struct setting setting = { .passes = 2, .connections = 2, .weakness_of = ended_unordered };
	explore("a probe ends without release", setting, rule);
	setting.weakness_of = looked_at_unordered;
	explore("who waits looks without acquire", setting, rule);
	setting.weakness_of = 0;
	setting.waits_once = true;
	explore("one phase is taken for enough", setting, rule);
}

const struct test grace_tests[] = {
	{ "disconnecting_waits", disconnecting_waits },
	{ "grace_mistakes_are_found", grace_mistakes_are_found },
	{ 0, 0 },
};
