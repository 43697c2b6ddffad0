/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The values of a probe that are more than registers. An address that a probe fetches from may be any number: memory is
 * read by the host, which says where there is none, and never by a load of our own.
 */
#include "core.h"
#include "mark.h"
#include "port.h"

#define PAGE 4096u
#define PIECE 256u              /* of a text whose end is looked for */

/* Page by page: the host reads a piece entirely or not at all. */
bool nopal_read(uint64_t address, void *to, uint32_t bytes)
{
	/* It takes a system call. */
	if (__atomic_load_n(&nopal_process->quiet, __ATOMIC_RELAXED))
		return false;
	unsigned char *rest = to;
	while (bytes) {
		uint32_t piece = PAGE - (uint32_t)address % PAGE;
		if (piece > bytes)
			piece = bytes;
		if (!port_read(address, rest, piece))
			return false;
		address += piece;
		rest += piece;
		bytes -= piece;
	}
	return true;
}

bool nopal_measure(uint64_t address, uint32_t most, struct nopal_text *text)
{
	unsigned char piece[PIECE];
	uint32_t length = 0;
	bool ends = false;
	*text = (struct nopal_text){ .address = address };
	while (!ends && length < most) {
		uint64_t at = address + length;
		uint32_t bytes = PIECE - (uint32_t)at % PIECE;
		if (bytes > most - length)
			bytes = most - length;
		if (!nopal_read(at, piece, bytes)) {
			if (!length)
				return false;
			break;
		}
		uint32_t i = 0;
		while (i < bytes && piece[i])
			i++;
		ends = i < bytes;
		length += i;
	}
	text->length = length < NOPAL_TEXT_LIMIT ? length : NOPAL_TEXT_LIMIT;
	text->cut = length - text->length;
	return true;
}

static bool find(const struct nopal_fetch *fetch, const uint64_t *registers, uint64_t *value)
{
	uint64_t found = fetch->source < NOPAL_FETCH_CONSTANT ? registers[fetch->source] >> fetch->shift : 0;
	found += fetch->offset[0];
	for (uint32_t load = 1; load <= fetch->loads; load++) {
		uint64_t loaded = 0;
		if (!nopal_read(found, &loaded, load == fetch->loads ? fetch->bytes : 8))
			return false;
		found = loaded + fetch->offset[load];
	}
	*value = found;
	return true;
}

void nopal_fetch(const struct nopal_mark *mark, const uint64_t *registers)
{
	const struct nopal_fetch *fetches = (const struct nopal_fetch *)(mark + 1);
	uint64_t values[NOPAL_FETCHES + 1], missing = 0;
	struct nopal_text texts[NOPAL_FETCHES];
	uint32_t count = (uint32_t)mark->probes;
	for (uint32_t i = 0; i < count; i++) {
		values[i] = 0;
		bool found = find(&fetches[i], registers, &values[i]);
		if (fetches[i].text) {
			texts[i] = (struct nopal_text){ 0 };
			found = found && nopal_measure(values[i], NOPAL_TEXT_COUNTED, &texts[i]);
			values[i] = (uint64_t)&texts[i];
		}
		missing |= (uint64_t)!found << i;
	}
	values[count] = missing;
	nopal_mark(mark, values, registers[4]);
}
