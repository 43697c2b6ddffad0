/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Enumerates the handlers and deaths at race points.
 */
#include "world.h"

#include <setjmp.h>

static void (*armed)(const char *name);

void arm(void)
{
	sim.at_race_point = armed;
}

static struct {
	void (*handler)(void);
	uint32_t depth;
	uint32_t passed[3];     /* points passed at each depth */
	uint32_t chosen[2];     /* at which of them the handler runs */
	const char *names[2];
} race;

static void on_race_point(const char *name)
{
	if (sim.running->signals_blocked)
		return;
	uint32_t depth = race.depth, number = race.passed[depth]++;
	if (depth == 2 || number != race.chosen[depth])
		return;
	race.names[depth] = name;
	snprintf(circumstances, sizeof circumstances, "handler at point %u (%s), nested at %u (%s)", race.chosen[0],
		 race.names[0], race.chosen[1], race.names[1] ? race.names[1] : "none");
	race.depth = depth + 1;
	race.passed[depth + 1] = 0;
	race.handler();
	race.depth = depth;
}

static void run_with(uint32_t first, uint32_t second, void (*scenario)(void), void (*end)(void))
{
	race.depth = 0;
	race.passed[0] = race.passed[1] = race.passed[2] = 0;
	race.chosen[0] = first;
	race.chosen[1] = second;
	race.names[0] = race.names[1] = 0;
	circumstances[0] = 0;
	scenario();
	sim.at_race_point = 0;
	end();
}

void at_all_race_points(void (*scenario)(void), void (*handler)(void), void (*end)(void))
{
	armed = on_race_point;
	race.handler = handler;
	uint32_t runs = 0, handled = 0;
	for (uint32_t first = 0;; first++) {
		for (uint32_t second = 0;; second++) {
			run_with(first, second, scenario, end);
			runs++;
			if (second >= race.passed[1])
				break;
			handled++;
		}
		if (first >= race.passed[0])
			break;
	}
	CHECK(handled > runs / 2);
	printf("%u runs\n", runs);
}

static void on_every_point(const char *name)
{
	if (race.depth || sim.running->signals_blocked)
		return;
	race.depth = 1;
	race.passed[0]++;
	snprintf(circumstances, sizeof circumstances, "handler at all %u points, the last of them %s", race.passed[0],
		 name);
	race.handler();
	race.depth = 0;
}

void at_every_race_point(void (*scenario)(void), void (*handler)(void), void (*end)(void))
{
	armed = on_every_point;
	race.handler = handler;
	run_with(0, 0, scenario, end);
	CHECK(race.passed[0] > 0);
}

static jmp_buf dead;
static const char *death_point;
static bool dies_blocked;

static void on_death_point(const char *name)
{
	if ((sim.running->signals_blocked && !dies_blocked) || race.passed[0]++ != race.chosen[0])
		return;
	death_point = name;
	snprintf(circumstances, sizeof circumstances, "death at point %u (%s)", race.chosen[0], name);
	longjmp(dead, 1);
}

void die_at_all_race_points(bool also_blocked, void (*scenario)(void), void (*after)(const char *point))
{
	dies_blocked = also_blocked;
	armed = on_death_point;
	for (race.chosen[0] = 0;; race.chosen[0]++) {
		race.passed[0] = 0;
		death_point = 0;
		circumstances[0] = 0;
		if (!setjmp(dead))
			scenario();
		sim.at_race_point = 0;
		after(death_point);
		if (!death_point)
			break;
	}
	CHECK(race.chosen[0] > 0);
	printf("%u runs\n", race.chosen[0]);
}
