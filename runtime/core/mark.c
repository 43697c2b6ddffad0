/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Recording markers: in place as record.S does for calls, with a record of the marker's own length.
 */
#include "mark.h"

#include "arch.h"
#include "port.h"

static struct nopal_text text_of(uint32_t kind, uint64_t value)
{
	static const char null[] = "(null)";
	if (kind == NOPAL_VALUE_FETCHED)
		return *(const struct nopal_text *)value;
	if (kind == NOPAL_VALUE_BYTES) {
		const struct {
			uint64_t address;
			uint64_t length;
		} *bytes = (const void *)value;
		uint64_t length = bytes->length < UINT32_MAX ? bytes->length : UINT32_MAX;
		uint32_t kept = length < NOPAL_TEXT_LIMIT ? (uint32_t)length : NOPAL_TEXT_LIMIT;
		return (struct nopal_text){ bytes->address, kept, (uint32_t)length - kept };
	}
	const unsigned char *address = (const unsigned char *)(value ? value : (uint64_t)null);
	uint32_t length = 0;
	while (length < NOPAL_TEXT_COUNTED && address[length])
		length++;
	uint32_t kept = length < NOPAL_TEXT_LIMIT ? length : NOPAL_TEXT_LIMIT;
	return (struct nopal_text){ (uint64_t)address, kept, length - kept };
}

static uint32_t kind_of(uint64_t shape, uint32_t value)
{
	return (uint32_t)(shape >> (NOPAL_SHAPE_VALUES + 2 * value)) & 3;
}

static uint32_t words_of(uint32_t bytes)
{
	return (bytes + 7) / 8;
}

/* Makes room for `bytes` and reads the clock. 0: the event is lost. Unlike a call, a marker is recorded even on a stack
 * without a mirror; there it always takes the slow path. */
static uint64_t reserve(uint64_t stack, uint32_t bytes, uint64_t *clock)
{
	struct nopal_process *process = nopal_process;
	bool prepared = false;
	for (uint32_t attempt = 0; attempt < NOPAL_ATTEMPTS; attempt++) {
		struct nopal_context *context = nopal_context_get(process);
		if (context && !context->muted) {
			uint64_t position = __atomic_load_n(&context->position, __ATOMIC_RELAXED);
			struct nopal_range range = nopal_range_load(context);
			bool known = stack - range.low < range.span || (prepared && !range.span);
			port_race_point("range compared by a marker");
			if (known && nopal_chunk_room(position) >= bytes) {
				*clock = port_clock();
				if ((uint32_t)(*clock >> 32) == context->clock_high) {
					if (arch_compare_exchange_local(&context->position, position, position + bytes))
						return position;
					continue;
				}
			}
		}
		if (nopal_prepare(stack, 0, bytes))
			return 0;
		prepared = true;
	}
	nopal_lose(process, nopal_context_get(process), NOPAL_LOST_INTERRUPTED);
	return 0;
}

/*
 * 1. the first word, its lower half first: it gives the event, and so the place of the length
 * 2. the length, if the event does not give it
 * 3. the values
 * 4. the clock: a record with a clock of 0 is unfinished
 */
static void begin(uint64_t *record, uint64_t clock, uint32_t event)
{
	uint32_t *first = (uint32_t *)record;
	port_race_point("marker reserved");
	__atomic_store_n(&first[0], (uint32_t)clock, __ATOMIC_RELAXED);
	__atomic_store_n(&first[1], NOPAL_KIND_EXTENDED | event << 4, __ATOMIC_RELEASE);
	port_race_point("marker begun");
}

static void end(uint64_t *record, uint64_t clock)
{
	port_race_point("marker filled in");
	__atomic_store_n(&record[1], clock, __ATOMIC_RELEASE);
}

/* Text may change while we read it: we copy as many bytes as were counted, even if they have changed. */
static uint64_t *copy(uint64_t *to, uint32_t kind, struct nopal_text text)
{
	*to++ = text.length | (uint64_t)text.cut << 32;
	unsigned char *bytes = (unsigned char *)to;
	const unsigned char *from = (const unsigned char *)text.address;
	if (kind == NOPAL_VALUE_FETCHED)
		nopal_read(text.address, bytes, text.length);
	else
		for (uint32_t i = 0; i < text.length; i++)
			bytes[i] = from[i];
	return to + words_of(text.length);
}

static void mark_with_text(const struct nopal_mark *mark, const uint64_t *values, uint64_t stack)
{
	uint32_t count = mark->shape & 15, words = 1;
	struct nopal_text texts[NOPAL_FETCHES];
	for (uint32_t i = 0; i < count; i++) {
		uint32_t kind = kind_of(mark->shape, i);
		words++;
		if (kind != NOPAL_VALUE_WORD) {
			texts[i] = text_of(kind, values[i]);
			words += words_of(texts[i].length);
		}
	}
	uint64_t clock;
	uint64_t *record = (uint64_t *)reserve(stack, 16 + 8 * words, &clock);
	if (!record)
		return;
	begin(record, clock, (uint32_t)mark->event);
	__atomic_store_n(&record[2], words, __ATOMIC_RELEASE);
	uint64_t *to = record + 3;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t kind = kind_of(mark->shape, i);
		if (kind == NOPAL_VALUE_WORD)
			*to++ = values[i];
		else
			to = copy(to, kind, texts[i]);
	}
	end(record, clock);
}

void nopal_mark(const struct nopal_mark *mark, const uint64_t *values, uint64_t stack)
{
	uint64_t count = mark->shape;
	if (count >> NOPAL_SHAPE_VALUES) {
		mark_with_text(mark, values, stack);
		return;
	}
	uint64_t clock;
	uint64_t *record = (uint64_t *)reserve(stack, 16 + 8 * (uint32_t)count, &clock);
	if (!record)
		return;
	begin(record, clock, (uint32_t)mark->event);
	for (uint64_t i = 0; i < count; i++)
		record[2 + i] = values[i];
	end(record, clock);
}
