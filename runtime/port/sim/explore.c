/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0 */
#include "explore.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A reached state: its hash, and the step that reached it first. */
struct reached {
	uint64_t hash[2];
	uint32_t from;
	uint32_t choice;
};

static struct {
	struct reached *reached;        /* in order of discovery */
	uint32_t count, room;
	uint64_t *table;                /* open addressing: number of a state, plus 1; above it, half of its hash */
	uint64_t table_size;
	uint8_t *waiting;               /* a ring of states whose steps were not tried: number, then contents */
	uint64_t first, end, waiting_room, entry_bytes;
	const char *broken;
	bool telling;
} search;

void sim_broken(const char *rule)
{
	if (!search.broken)
		search.broken = rule;
}

void sim_tell(const char *format, ...)
{
	if (!search.telling)
		return;
	va_list arguments;
	va_start(arguments, format);
	printf("  ");
	vprintf(format, arguments);
	printf("\n");
	va_end(arguments);
}

static void *grown(void *memory, uint64_t bytes)
{
	memory = realloc(memory, bytes);
	if (!memory) {
		puts("no memory for so many states");
		abort();
	}
	return memory;
}

static uint64_t mixed(uint64_t value)
{
	value ^= value >> 32;
	value *= 0xd6e8feb86659fd93;
	value ^= value >> 32;
	value *= 0xd6e8feb86659fd93;
	return value ^ value >> 32;
}

static uint64_t stirred(uint64_t lane, uint64_t word, uint64_t factor)
{
	lane = (lane ^ word) * factor;
	return lane ^ lane >> 29;
}

static void hash_part(const struct sim_part *part, uint32_t kind, uint64_t hash[2])
{
	uint64_t a = kind * 0x9e3779b97f4a7c15 + 1, b = ~a, c = kind * 0xc2b2ae3d27d4eb4f + 2, d = ~c;
	const uint8_t *at = part->at;
	for (uint32_t i = 0; i < part->bytes; i += 16) {
		uint64_t words[2] = { 0, 0 };
		memcpy(words, at + i, part->bytes - i < 16 ? part->bytes - i : 16);
		a = stirred(a, words[0], 0x9fb21c651e98df25);
		b = stirred(b, words[1], 0xd1342543de82ef95);
		c = stirred(c, words[0], 0xaf251af3b0f025b5);
		d = stirred(d, words[1], 0xb564ef22ec7aece5);
	}
	/* A sum, which does not depend on the order of parts of one kind. */
	hash[0] += mixed(a + mixed(b));
	hash[1] += mixed(c + mixed(d));
}

static void hash_state(const struct sim_exploration *exploration, uint64_t hash[2])
{
	hash[0] = hash[1] = 0;
	for (uint32_t i = 0; i < exploration->part_count; i++) {
		const struct sim_part *part = &exploration->parts[i];
		hash_part(part, part->kind ? part->kind : 1000 + i, hash);
	}
}

static void enter(uint32_t number)
{
	const uint64_t *hash = search.reached[number].hash;
	uint64_t at = hash[0] & (search.table_size - 1);
	while (search.table[at])
		at = (at + 1) & (search.table_size - 1);
	search.table[at] = (number + 1) | hash[1] >> 32 << 32;
}

static bool is_known(const uint64_t hash[2])
{
	for (uint64_t at = hash[0] & (search.table_size - 1); search.table[at]; at = (at + 1) & (search.table_size - 1)) {
		if (search.table[at] >> 32 != hash[1] >> 32)
			continue;
		const struct reached *reached = &search.reached[(uint32_t)search.table[at] - 1];
		if (reached->hash[0] == hash[0] && reached->hash[1] == hash[1])
			return true;
	}
	return false;
}

static void save(const struct sim_exploration *exploration, uint8_t *to)
{
	for (uint32_t i = 0; i < exploration->part_count; to += exploration->parts[i++].bytes)
		memcpy(to, exploration->parts[i].at, exploration->parts[i].bytes);
}

static void restore(const struct sim_exploration *exploration, const uint8_t *from)
{
	for (uint32_t i = 0; i < exploration->part_count; from += exploration->parts[i++].bytes)
		memcpy(exploration->parts[i].at, from, exploration->parts[i].bytes);
}

static uint8_t *waiting_at(uint64_t number)
{
	return search.waiting + number % search.waiting_room * search.entry_bytes;
}

static void make_room_for_waiting(void)
{
	if (search.end - search.first < search.waiting_room)
		return;
	uint64_t room = search.waiting_room * 2, count = search.end - search.first;
	uint8_t *waiting = grown(0, room * search.entry_bytes);
	for (uint64_t i = 0; i < count; i++)
		memcpy(waiting + i * search.entry_bytes, waiting_at(search.first + i), search.entry_bytes);
	free(search.waiting);
	search.waiting = waiting;
	search.waiting_room = room;
	search.first = 0;
	search.end = count;
}

/* Records the current state, if it is new. */
static void reach(const struct sim_exploration *exploration, uint32_t from, uint32_t choice)
{
	uint64_t hash[2];
	hash_state(exploration, hash);
	if (is_known(hash))
		return;
	if (search.count == search.room) {
		search.room *= 2;
		search.reached = grown(search.reached, (uint64_t)search.room * sizeof *search.reached);
		free(search.table);
		search.table_size *= 2;
		search.table = grown(0, search.table_size * sizeof *search.table);
		memset(search.table, 0, search.table_size * sizeof *search.table);
		for (uint32_t i = 0; i < search.count; i++)
			enter(i);
	}
	search.reached[search.count] = (struct reached){ { hash[0], hash[1] }, from, choice };
	enter(search.count);
	make_room_for_waiting();
	uint8_t *entry = waiting_at(search.end++);
	memcpy(entry, &search.count, sizeof search.count);
	save(exploration, entry + sizeof search.count);
	search.count++;
}

/* Replays the way to state `number`, then takes `last` if that is a choice, and prints the steps. */
static void tell_way(const struct sim_exploration *exploration, uint32_t number, uint32_t last)
{
	uint32_t length = 0;
	for (uint32_t at = number; at; at = search.reached[at].from)
		length++;
	uint32_t *way = grown(0, (length + 1) * sizeof *way);
	way[length] = last;
	uint32_t place = length;
	for (uint32_t at = number; at; at = search.reached[at].from)
		way[--place] = search.reached[at].choice;
	printf("%s, after %u steps:\n", search.broken, length + 1);
	search.telling = true;
	exploration->begin();
	for (uint32_t i = 0; i <= length; i++)
		if (way[i] < exploration->choices)
			exploration->take(way[i]);
	search.telling = false;
	free(way);
}

struct sim_explored sim_explore(const struct sim_exploration *exploration)
{
	struct sim_explored explored = { 0 };
	search.broken = 0;
	search.count = 0;
	search.room = 1 << 16;
	search.table_size = 4 * search.room;
	search.reached = grown(0, search.room * sizeof *search.reached);
	search.table = grown(0, search.table_size * sizeof *search.table);
	memset(search.table, 0, search.table_size * sizeof *search.table);
	search.entry_bytes = sizeof search.count;
	for (uint32_t i = 0; i < exploration->part_count; i++)
		search.entry_bytes += exploration->parts[i].bytes;
	search.first = search.end = 0;
	search.waiting_room = 1 << 12;
	search.waiting = grown(0, search.waiting_room * search.entry_bytes);
	uint8_t *state = grown(0, search.entry_bytes);

	exploration->begin();
	reach(exploration, 0, 0);
	while (search.first < search.end && !search.broken) {
		memcpy(state, waiting_at(exploration->deep ? --search.end : search.first++), search.entry_bytes);
		uint32_t number, taken = 0;
		memcpy(&number, state, sizeof number);
		restore(exploration, state + sizeof number);
		for (uint32_t choice = 0; choice < exploration->choices && !search.broken; choice++) {
			if (!exploration->take(choice))
				continue;
			taken++;
			explored.steps++;
			if (search.broken)
				tell_way(exploration, number, choice);
			else
				reach(exploration, number, choice);
			restore(exploration, state + sizeof number);
		}
		if (!taken && !search.broken && !exploration->may_rest()) {
			sim_broken("nobody can go on");
			tell_way(exploration, number, exploration->choices);
		}
	}
	explored.states = search.count;
	explored.broken = search.broken;
	free(search.reached);
	free(search.table);
	free(search.waiting);
	free(state);
	return explored;
}
