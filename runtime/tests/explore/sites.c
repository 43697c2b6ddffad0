/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * A step of an exploration of sites: of the memory, the patcher, a signal, or a processor.
 */
#include "sites.h"

const char garbled[] = "a processor runs bytes that are no instruction of the site's";
const char freed[] = "a processor runs code that was freed";
const char unmade[] = "a site is not what the patcher made of it";
const char overwritten[] = "the patcher has written over a breakpoint of a debugger's";

static const struct site_world *explored;

static bool take(uint32_t choice)
{
	if (choice < SIM_TEXT_STEPS)
		return sim_text_step(choice);
	choice -= SIM_TEXT_STEPS;
	if (choice < explored->patcher_choices)
		return explored->patch(choice);
	choice -= explored->patcher_choices;
	if (choice < SIM_PROCESSORS)
		return explored->handle_signal(choice);
	choice -= SIM_PROCESSORS;
	return explored->run(choice / SITE_WAYS, choice % SITE_WAYS);
}

static bool never(void)
{
	return false;
}

void explore_sites(const char *what, const struct site_world *world, const char *rule)
{
	const struct sim_part parts[] = {
		{ &sim_text, sizeof sim_text, 0 },
		{ world->patcher, world->patcher_bytes, 0 },
		{ &sim_processors[0], sizeof *sim_processors, 1 },
		{ &sim_processors[1], sizeof *sim_processors, 1 },
		{ &sim_processors[2], sizeof *sim_processors, 1 },
	};
	const struct sim_exploration exploration = {
		.parts = parts, .part_count = sizeof parts / sizeof *parts,
		.choices = SIM_TEXT_STEPS + world->patcher_choices + SIM_PROCESSORS * (1 + SITE_WAYS),
		.begin = world->begin, .take = take, .may_rest = never,
	};
	explored = world;
	expect(what, &exploration, rule);
}
