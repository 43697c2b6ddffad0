/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Changes the text of the running program, by the order of core/poke_protocol.c for a window of one instruction: other threads
 * may be passing it. The pages are writable for that long.
 */
#define _GNU_SOURCE
#include "library.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "poke_protocol.h"
#include "text.h"

#define PAGE 4096ull
#define JUMP ARCH_JUMP_BYTES

static const uint8_t nop[JUMP] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };

void port_text_store(uint64_t address, const uint8_t *bytes, uint32_t count)
{
	if (count == 2) {
		uint16_t both;
		memcpy(&both, bytes, 2);
		__atomic_store_n((uint16_t *)address, both, __ATOMIC_RELEASE);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		__atomic_store_n((uint8_t *)address + i, bytes[i], __ATOMIC_RELEASE);
}

void port_text_synchronise(void)
{
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
}

/* Only needed by protocols that are not used here. */
void port_text_stop(void)
{
}

void port_text_go(void)
{
}

bool port_text_place(uint32_t number, struct port_place *place)
{
	(void)number;
	(void)place;
	return false;
}

void port_text_move(uint32_t number, uint64_t address)
{
	(void)number;
	(void)address;
}

static void jump_of(const struct found_place *place, uint8_t bytes[JUMP])
{
	int32_t distance = (int32_t)(place->on - (place->place + JUMP));
	bytes[0] = 0xe9;
	memcpy(bytes + 1, &distance, sizeof distance);
}

/* The currently writable pages. Between change_begin and change_end. */
static uint64_t writable, writable_end;

void text_protect(void)
{
	if (writable < writable_end)
		mprotect((void *)writable, writable_end - writable, PROT_READ | PROT_EXEC);
	writable = writable_end = 0;
}

int text_unprotect(uint64_t address, uint64_t bytes)
{
	uint64_t first = address & ~(PAGE - 1), end = (address + bytes + PAGE - 1) & ~(PAGE - 1);
	if (writable <= first && end <= writable_end)
		return 0;
	text_protect();
	if (mprotect((void *)first, end - first, PROT_READ | PROT_WRITE | PROT_EXEC))
		return -errno;
	writable = first;
	writable_end = end;
	return 0;
}

uint8_t *text_new_page(uint64_t place)
{
	void *page = MAP_FAILED;
	for (uint64_t away = 1 << 20; page == MAP_FAILED && away < REACH; away += 1 << 22) {
		uint64_t at = ((place > away + (1 << 20) ? place - away : place + away) & ~(PAGE - 1));
		page = mmap((void *)at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	}
	return page == MAP_FAILED ? 0 : page;
}

static int protect(const struct nopal_poke *pokes, uint32_t count, int protection)
{
	for (uint32_t i = 0; i < count;) {
		uint64_t first = pokes[i].site & ~(PAGE - 1), end = first;
		for (; i < count && (pokes[i].site & ~(PAGE - 1)) <= end; i++)
			end = (pokes[i].site + JUMP + PAGE - 1) & ~(PAGE - 1);
		if (mprotect((void *)first, end - first, protection))
			return -errno;
	}
	return 0;
}

static int by_site(const void *a, const void *b)
{
	const struct nopal_poke *one = a, *other = b;
	return one->site < other->site ? -1 : one->site > other->site;
}

int text_poke(struct nopal_poke *pokes, uint32_t count)
{
	if (!count)
		return 0;
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0))
		return -errno;
	qsort(pokes, count, sizeof *pokes, by_site);
	int error = protect(pokes, count, PROT_READ | PROT_WRITE | PROT_EXEC);
	if (!error)
		nopal_poke(NOPAL_POKE_IN_PLACE, pokes, count);
	protect(pokes, count, PROT_READ | PROT_EXEC);
	return error;
}

bool text_is_on(const struct found_place *place)
{
	if (place->kind == NOPAL_PLACE_TESTED)
		return __atomic_load_n((const uint8_t *)place->place, __ATOMIC_RELAXED);
	uint8_t jump[JUMP];
	jump_of(place, jump);
	return !memcmp((const void *)place->place, jump, JUMP);
}

int text_switch(const struct found *found, bool on)
{
	struct nopal_poke *pokes = calloc(found->place_count + 1, sizeof *pokes);
	if (!pokes)
		return -ENOMEM;
	uint32_t count = 0;
	for (size_t i = 0; i < found->place_count; i++) {
		const struct found_place *place = &found->places[i];
		if (place->kind == NOPAL_PLACE_TESTED) {
			__atomic_store_n((uint8_t *)place->place, on, __ATOMIC_RELEASE);
			continue;
		}
		uint8_t jump[JUMP];
		jump_of(place, jump);
		const uint8_t *before = on ? nop : jump, *after = on ? jump : nop;
		if (memcmp((const void *)place->place, before, JUMP))
			continue;
		struct nopal_poke *poke = &pokes[count++];
		poke->site = place->place;
		memcpy(poke->before, before, JUMP);
		memcpy(poke->after, after, JUMP);
	}
	int error = text_poke(pokes, count);
	free(pokes);
	return error;
}
