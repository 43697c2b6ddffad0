/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0 */
#include "sim_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explore.h"

#define VALUES 16

struct sim_text sim_text;
struct sim_processor sim_processors[SIM_PROCESSORS];
bool (*sim_text_place)(uint32_t number, struct port_place *place);
void (*sim_text_move)(uint32_t number, uint64_t address);
bool sim_text_goes_on_stale;

/* All values that a pair has had so far, in order of occurrence; not part of the state. */
static struct {
	uint8_t values[VALUES][2];
	uint32_t count;
} pairs[SIM_TEXT_PAIRS];

static uint32_t value_number(uint32_t pair)
{
	const uint8_t *value = &sim_text.bytes[2 * pair];
	for (uint32_t i = 0; i < pairs[pair].count; i++)
		if (!memcmp(pairs[pair].values[i], value, 2))
			return i;
	if (pairs[pair].count == VALUES) {
		puts("too many values of a pair of bytes");
		abort();
	}
	memcpy(pairs[pair].values[pairs[pair].count], value, 2);
	return pairs[pair].count++;
}

static void synchronise(struct sim_processor *processor)
{
	for (uint32_t pair = 0; pair < SIM_TEXT_PAIRS; pair++)
		processor->sees[pair] = (uint16_t)(1 << value_number(pair));
}

void sim_text_lay(uint32_t at, const uint8_t *bytes, uint32_t count)
{
	memcpy(&sim_text.bytes[at], bytes, count);
	for (uint32_t i = 0; i < SIM_PROCESSORS; i++)
		synchronise(&sim_processors[i]);
}

void sim_text_begin(void)
{
	memset(&sim_text, 0, sizeof sim_text);
	memset(sim_processors, 0, sizeof sim_processors);
	memset(sim_text.bytes, 0x90, sizeof sim_text.bytes);
	sim_text_lay(0, 0, 0);
}

/* ---- Requests to the port ---- */

void port_text_store(uint64_t address, const uint8_t *bytes, uint32_t count)
{
	uint32_t at = (uint32_t)(address - sim_text_address(0));
	uint32_t piece = count == 2 && at % 2 == 0 ? 2 : 1;
	uint8_t turn = 0;
	for (uint32_t slot = 0; slot < SIM_STORES; slot++)
		if (sim_text.stores[slot].count && sim_text.stores[slot].turn >= turn)
			turn = sim_text.stores[slot].turn + 1;
	for (uint32_t i = 0, slot = 0; i < count; slot++) {
		if (slot == SIM_STORES) {
			puts("too many stores at once");
			abort();
		}
		struct sim_store *store = &sim_text.stores[slot];
		if (store->count)
			continue;
		store->at = (uint8_t)(at + i);
		store->count = (uint8_t)piece;
		store->turn = turn;
		memcpy(store->bytes, bytes + i, piece);
		i += piece;
	}
}

void port_text_synchronise(void)
{
	for (uint32_t i = 0; i < SIM_PROCESSORS; i++)
		sim_processors[i].must_synchronise = true;
}

void port_text_stop(void)
{
	for (uint32_t i = 0; i < SIM_PROCESSORS; i++)
		sim_processors[i].must_stop = true;
}

void port_text_go(void)
{
	sim_text.going = true;
}

bool port_text_place(uint32_t number, struct port_place *place)
{
	return sim_text_place(number, place);
}

void port_text_move(uint32_t number, uint64_t address)
{
	sim_text_move(number, address);
}

/* ---- Their execution ---- */

static bool is_storing(void)
{
	for (uint32_t i = 0; i < SIM_STORES; i++)
		if (sim_text.stores[i].count)
			return true;
	return false;
}

bool sim_text_is_busy(void)
{
	for (uint32_t i = 0; i < SIM_PROCESSORS; i++)
		if (sim_processors[i].must_synchronise || sim_processors[i].must_stop)
			return true;
	return is_storing() || sim_text.going;
}

static void store_now(struct sim_store *store)
{
	memcpy(&sim_text.bytes[store->at], store->bytes, store->count);
	sim_tell("text %u.. becomes %02x%s", store->at, store->bytes[0], store->count == 2 ? " and one more, at once" : "");
	for (uint32_t i = 0; i < SIM_PROCESSORS; i++)
		sim_processors[i].sees[store->at / 2] |= (uint16_t)(1 << value_number(store->at / 2));
	*store = (struct sim_store){ 0 };
}

/* While all are stopped, the order does not matter. */
static bool do_store(uint32_t number)
{
	struct sim_store *stores = sim_text.stores;
	bool all_stopped = true;
	if (!stores[number].count)
		return false;
	for (uint32_t i = 0; i < SIM_PROCESSORS; i++)
		all_stopped &= sim_processors[i].stopped;
	for (uint32_t i = 0; i < SIM_STORES; i++)
		if (stores[i].count && (all_stopped ? i < number : stores[i].turn < stores[number].turn))
			return false;
	for (uint32_t i = number; i < SIM_STORES; i++)
		if (i == number || (all_stopped && stores[i].count))
			store_now(&stores[i]);
	return true;
}

/* A processor in the breakpoint handler takes no interrupts. */
static bool interrupt(uint32_t number)
{
	struct sim_processor *processor = &sim_processors[number];
	if (!(processor->must_synchronise || processor->must_stop) || processor->in_breakpoint_handler)
		return false;
	sim_tell("processor %u %s", number, processor->must_stop ? "stops" : "synchronises");
	if (processor->must_synchronise)
		synchronise(processor);
	processor->stopped = processor->stopped || processor->must_stop;
	processor->must_synchronise = processor->must_stop = false;
	return true;
}

static bool go(void)
{
	if (!sim_text.going)
		return false;
	sim_tell("all go on");
	for (uint32_t i = 0; i < SIM_PROCESSORS; i++) {
		if (!sim_text_goes_on_stale)
			synchronise(&sim_processors[i]);
		sim_processors[i].stopped = false;
	}
	sim_text.going = false;
	return true;
}

bool sim_text_step(uint32_t number)
{
	if (number < SIM_STORES)
		return do_store(number);
	if (is_storing())
		return false;
	return number < SIM_STORES + SIM_PROCESSORS ? interrupt(number - SIM_STORES) : go();
}

bool sim_text_fetch(const struct sim_processor *processor, uint32_t at, uint32_t count, uint32_t way, uint32_t ways,
		    uint8_t *bytes)
{
	uint8_t found[12];
	uint32_t first = at / 2, last = (at + count - 1) / 2, left = way, all = 1;
	for (uint32_t pair = first; pair <= last; pair++) {
		uint32_t seen = processor->sees[pair], values = 1;
		for (uint32_t others = seen & (seen - 1); others; others &= others - 1)
			values++;
		for (uint32_t skip = left % values; skip; skip--)
			seen &= seen - 1;
		left /= values;
		all *= values;
		memcpy(&found[2 * (pair - first)], pairs[pair].values[__builtin_ctz(seen)], 2);
	}
	if (all > ways) {
		puts("too many ways to see some bytes");
		abort();
	}
	memcpy(bytes, &found[at % 2], count);
	return !left;
}
