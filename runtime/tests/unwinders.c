/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Tests of unwinding through generated code.
 */
#include "hooks.h"
#include "world.h"

const char nopal_landing[1];

static const unsigned char after_call[] = { 0x48, 0x8d, 0x64, 0x24, 0xf8, 0x90 };
static const unsigned char elsewhere[] = { 0x90, 0x90, 0x90, 0x90, 0x90, 0x90 };

static void begin(void)
{
	world_begin(1);
	process.blocks[0] = (struct nopal_block){ (uint64_t)after_call, (uint64_t)(after_call + sizeof after_call), 0x111, 0, 0 };
	process.blocks[1] = (struct nopal_block){ (uint64_t)elsewhere, (uint64_t)(elsewhere + sizeof elsewhere), 0x222, 0, 0 };
	process.block_count = 2;
}

static int loader_finds(uint64_t address, struct nopal_found_object *found)
{
	found->map_start = address - 1;
	return address % 2 ? 0 : -1;
}

static void objects_are_found(void)
{
	begin();
	struct nopal_found_object found;
	for (unsigned i = 0; i < sizeof elsewhere; i++) {
		memset(&found, 0xff, sizeof found);
		CHECK(nopal_find_object((uint64_t)&elsewhere[i], &found, loader_finds) == 0);
		CHECK(found.map_start == (uint64_t)elsewhere && found.map_end == (uint64_t)(elsewhere + sizeof elsewhere));
		CHECK(found.eh_frame_header == 0x222 && found.flags == 0 && found.link_map == 0);
		CHECK(nopal_is_generated((uint64_t)&elsewhere[i]));
	}
	CHECK(nopal_find_object(0x1001, &found, loader_finds) == 0 && found.map_start == 0x1000);
	CHECK(nopal_find_object(0x1002, &found, loader_finds) == -1);
	CHECK(!nopal_is_generated((uint64_t)elsewhere - 1) || (uint64_t)elsewhere - 1 < process.blocks[0].high);
	process.block_count = 1;
	CHECK(!nopal_is_generated((uint64_t)elsewhere));
}

struct nopal_object_info {
	uint64_t base;
	const char *name;
	const struct {
		uint32_t type, flags;
		uint64_t offset, address, physical, file_size, memory_size, align;
	} *headers;
	uint16_t header_count;
};

static uint32_t calls;
static uint64_t headers_seen;

static int listener(struct nopal_object_info *info, uint64_t size, void *data)
{
	CHECK(size >= sizeof *info && data == &calls);
	calls++;
	if (info) {
		CHECK(info->header_count == 2 && info->headers[0].type == 1 && info->headers[1].type == 0x6474e550);
		CHECK(info->base == 0 && info->headers[0].memory_size == 6 && info->name[0] == 0);
		headers_seen += info->headers[1].address;
	}
	return calls == (uint32_t)*(uint32_t *)data ? 0 : 1;
}

static int loader_lists(nopal_object_callback *callback, void *data)
{
	(void)callback;
	(void)data;
	return 0;
}

static int loader_is_stopped(nopal_object_callback *callback, void *data)
{
	(void)callback;
	(void)data;
	return 5;
}

/* The callback is the program's, or an unwinder's, as the table says. */
static void objects_are_listed_for_unwinders_only(void)
{
	begin();
	calls = 0;
	headers_seen = 0;
	CHECK(nopal_iterate_objects(listener, &calls, loader_lists) == 0);
	CHECK(calls == 0);
	process.unwinders[0] = (struct nopal_unwinder){ .low = 0x1000, .high = 0x2000 };
	process.unwinders[1] = (struct nopal_unwinder){ .low = (uint64_t)listener, .high = (uint64_t)listener + 1 };
	process.unwinder_count = 2;
	CHECK(nopal_iterate_objects(listener, &calls, loader_is_stopped) == 5);
	CHECK(calls == 0);
	CHECK(nopal_iterate_objects(listener, &calls, loader_lists) == 0);
	CHECK(calls == 2 && headers_seen == 0x333);
}

enum { SEARCH = 1, CLEANUP = 2, CONTINUE_UNWIND = 8, INSTALL_CONTEXT = 7 };

static uint64_t address, registers[2], landed;

static void set_register(void *context, int number, uint64_t value)
{
	CHECK(context == &address && (number == 0 || number == 1));
	registers[number] = value;
}

static void set_address(void *context, uint64_t value)
{
	CHECK(context == &address);
	landed = value;
}

static uint64_t get_address(void *context)
{
	return *(uint64_t *)context;
}

static void exceptions_land_behind_the_call_only(void)
{
	begin();
	static char exception;
	CHECK(nopal_personality(1, CLEANUP, 0, &exception, &address) == CONTINUE_UNWIND);
	process.unwinders[0] = (struct nopal_unwinder){
		.low = (uint64_t)exceptions_land_behind_the_call_only,
		.high = (uint64_t)exceptions_land_behind_the_call_only + 0x4000,
		.set_register = (uint64_t)set_register,
		.set_address = (uint64_t)set_address,
		.get_address = (uint64_t)get_address,
	};
	process.unwinder_count = 1;
	address = (uint64_t)after_call;
	CHECK(nopal_personality(1, SEARCH, 0, &exception, &address) == CONTINUE_UNWIND && !landed);
	address = (uint64_t)elsewhere;
	CHECK(nopal_personality(1, CLEANUP, 0, &exception, &address) == CONTINUE_UNWIND && !landed);
	address = 0x1000;
	CHECK(nopal_personality(1, CLEANUP, 0, &exception, &address) == CONTINUE_UNWIND && !landed);
	address = (uint64_t)after_call;
	CHECK(nopal_personality(1, CLEANUP, 0, &exception, &address) == INSTALL_CONTEXT);
	CHECK(landed == (uint64_t)nopal_landing && registers[0] == (uint64_t)&exception);
	/* The place, and above it the number of the unwinder: the first. */
	CHECK(registers[1] == (uint64_t)after_call);
}

const struct test unwind_tests[] = {
	{ "objects_are_found", objects_are_found },
	{ "objects_are_listed_for_unwinders_only", objects_are_listed_for_unwinders_only },
	{ "exceptions_land_behind_the_call_only", exceptions_land_behind_the_call_only },
	{ 0, 0 },
};
