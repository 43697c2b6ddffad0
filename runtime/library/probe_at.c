/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Functions of the program's own at any instruction, and where functions return. A jump at the place leads to a detour,
 * which calls library_probed, runs the instructions that the jump replaces, and jumps back. Places in doubt are
 * refused.
 *
 * A NOP of five bytes is changed in place while threads pass it. Other windows are changed only while the process has
 * one thread, which is here and so neither in them nor about to return into them. If they are removed while there are
 * others, their jumps stay: detours are never freed, and then only lead back.
 */
#define _GNU_SOURCE
#include "library.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "poke_protocol.h"

#define PAGE 4096ull
#define WINDOW 20               /* at most: whole instructions, of which the last has the fifth byte */
#define RET 0xc3

/* probed.S knows the first fields. Never freed: a thread may still arrive. */
struct place {
	uint64_t address;
	struct connections *connections;
	struct place *next;
	uint64_t window;                /* where the jump is */
	uint64_t detour;
	uint8_t length;                 /* of the window's instructions */
	bool is_nop;
	uint8_t before[WINDOW];         /* the window */
};

/* Under library_lock. */
static struct place *places;

void library_probed(void);

/* Called by library_probed: changes general registers only. */
__attribute__((visibility("hidden"))) void library_probe(struct place *place, struct nopal_registers *registers);
void library_probe(struct place *place, struct nopal_registers *registers)
{
	unsigned token;
	if (!probe_begin(&token))
		return;
	const struct connections *connections = __atomic_load_n(&place->connections, __ATOMIC_ACQUIRE);
	for (size_t i = 0; connections && i < connections->count; i++) {
		const struct connection *connection = &connections->all[i];
		if (connection->general)
			((nopal_register_probe *)(void *)connection->probe)(connection->data, registers);
		else
			library_call_ordinary(connection->data, (const void *)registers, 0, connection->probe);
	}
	grace_end(token);
}

/* ---- what a function consists of ---- */

/* Read from the file, since text in memory may be changed. */
struct code {
	const struct found_function *function;
	uint64_t *starts;               /* of its instructions */
	size_t count;
	bool unknown_jumps;
};

static bool instruction_of(const struct code *code, uint64_t address, struct instruction *found)
{
	const struct found_function *function = code->function;
	return instruction_at(function->bytes + (address - function->address), function->end - address, address, found);
}

/* False: no memory, or an instruction that is not known. */
static bool read_code(const struct found_function *function, struct code *code)
{
	*code = (struct code){ .function = function };
	code->starts = calloc(function->end - function->address + 1, sizeof *code->starts);
	struct instruction instruction;
	uint64_t at = function->address;
	for (; code->starts && at < function->end; at += instruction.length) {
		if (!instruction_of(code, at, &instruction))
			return false;
		code->starts[code->count++] = at;
		code->unknown_jumps |= instruction.kind == INSTRUCTION_UNKNOWN_JUMP;
	}
	return code->starts;
}

static size_t number_of(const struct code *code, uint64_t address)
{
	size_t number = 0;
	while (number < code->count && code->starts[number] < address)
		number++;
	return number;
}

struct led_into {
	const struct found_function *function;
	uint64_t low, high;
	bool found;
};

/* Whether a direct jump of a function leads behind `low` and before `high`, or a computed jump may, from a part of the
 * function that stands elsewhere. */
static void look_for_jump(const uint8_t *bytes, uint64_t begin, uint64_t end, void *data)
{
	struct led_into *led = data;
	struct instruction instruction;
	bool is_part = false, unknown = false;
	for (uint64_t at = begin; at < end && !led->found; at += instruction.length) {
		/* An instruction that cannot be decoded may lead anywhere. */
		led->found = !instruction_at(bytes + (at - begin), end - at, at, &instruction) ||
			     (instruction.direct && instruction.target > led->low && instruction.target < led->high);
		unknown |= instruction.kind == INSTRUCTION_UNKNOWN_JUMP;
		is_part |= instruction.kind == INSTRUCTION_JUMP && instruction.target > led->function->address &&
			   instruction.target < led->function->end;
	}
	led->found |= is_part && unknown;
}

/* ---- windows ---- */

struct window {
	uint64_t at;
	uint8_t length;                 /* of its instructions */
	bool is_nop;
	bool returns;                   /* its last instruction is the return whose place it is */
};

/* A NOP that threads may be passing while it is changed. */
static bool is_nop(uint64_t address)
{
	static const uint8_t nop[] = ARCH_NOP;
	const uint8_t *bytes = (const uint8_t *)address;
	return address % 2 == 0 && !memcmp(bytes, nop, 4) && (bytes[4] == 0 || bytes[4] == 8);
}

/* Whether instructions may be displaced from [low, high), of which nothing but the begin is reached in another way. 0,
 * or the error's text. */
static const char *unfit(const struct code *code, uint64_t low, uint64_t high, bool returns)
{
	const struct found_function *function = code->function;
	struct instruction instruction;
	size_t count = 0;
	for (uint64_t at = low; at < high; at += instruction.length, count++) {
		if (!instruction_of(code, at, &instruction))
			return "an instruction there is not known";
		bool is_last = at + instruction.length == high;
		if (instruction.kind != INSTRUCTION_PLAIN && !(returns && is_last && instruction.kind == INSTRUCTION_RETURN))
			return "an instruction there cannot run elsewhere";
	}
	if (memcmp((const void *)low, function->bytes + (low - function->address), high - low))
		return "the bytes there are not those of the file";
	if (count == 1)
		return 0;
	if (code->unknown_jumps)
		return "a computed jump of the function may lead into the bytes that a jump needs";
	if (!function->knows_all)
		return "other functions, which the symbol table lacks, may lead into the bytes that a jump needs";
	if (function->lands)
		return "an exception may land in the bytes that a jump needs";
	struct led_into led = { function, low, high, false };
	each_function_beside(function->address, look_for_jump, &led);
	return led.found ? "a jump leads into the bytes that a jump needs" : 0;
}

static int find_window(const char *name, const struct code *code, uint64_t address, struct window *window)
{
	uint64_t function_end = code->function->end;
	size_t number = number_of(code, address);
	if (number == code->count || code->starts[number] != address)
		return library_failed(-EINVAL, "\"%s\" is inside an instruction, which begins at +0x%lx", name,
				      code->starts[number ? number - 1 : 0] - code->function->address);
	*window = (struct window){ .at = address, .is_nop = is_nop(address) };
	if (window->is_nop) {
		window->length = ARCH_JUMP_BYTES;
		return 0;
	}
	uint64_t end = address;
	struct instruction instruction;
	for (; end < address + ARCH_JUMP_BYTES && end < function_end; end += instruction.length)
		if (!instruction_of(code, end, &instruction))
			return library_failed(-ENOTSUP, "\"%s\": an instruction there is not known", name);
	window->length = (uint8_t)(end - address);
	if (window->length < ARCH_JUMP_BYTES)
		return library_failed(-ENOTSUP, "\"%s\": the function ends within the bytes that a jump needs", name);
	const char *why = unfit(code, address, end, false);
	return why ? library_failed(-ENOTSUP, "\"%s\": %s", name, why) : 0;
}

/* The window of a return, with as few instructions before it as possible. */
static int find_return(const char *name, const struct code *code, size_t number, struct window *window)
{
	const struct found_function *function = code->function;
	uint64_t at = code->starts[number], end = at + 1;
	const char *why = "the function begins within the bytes that a jump needs";
	if (function->bytes[at - function->address] != RET)
		return library_failed(-ENOTSUP, "\"%s+0x%lx\" is a return that takes arguments away", name, at - function->address);
	for (size_t first = number; first-- > 0;) {
		uint64_t low = code->starts[first];
		if (end - low < ARCH_JUMP_BYTES)
			continue;
		*window = (struct window){ .at = low, .length = (uint8_t)(end - low), .returns = true };
		why = end - low > WINDOW ? "there is no room" : unfit(code, low, end, true);
		break;
	}
	return why ? library_failed(-ENOTSUP, "\"%s+0x%lx\": %s", name, at - function->address, why) : 0;
}

/* ---- detours ---- */

struct writer {
	uint8_t *page;
	uint64_t at;
};

static void write_bytes(struct writer *writer, const void *bytes, size_t count)
{
	memcpy(writer->page + writer->at, bytes, count);
	writer->at += count;
}

/* An instruction of `bytes` and a distance to `target`. */
static void write_relative(struct writer *writer, const void *bytes, size_t count, uint64_t target)
{
	write_bytes(writer, bytes, count);
	int32_t distance = (int32_t)(target - ((uint64_t)writer->page + writer->at + 4));
	write_bytes(writer, &distance, 4);
}

static void write_call(struct writer *writer, uint64_t place, uint64_t function)
{
	write_bytes(writer, (const uint8_t[]){ 0x48, 0x8d, 0x64, 0x24, 0x80 }, 5);      /* lea -128(%rsp), %rsp */
	write_relative(writer, (const uint8_t[]){ 0xff, 0x35 }, 2, place);              /* push place */
	write_relative(writer, (const uint8_t[]){ 0xff, 0x15 }, 2, function);           /* call function */
	write_bytes(writer, (const uint8_t[]){ 0x48, 0x8d, 0xa4, 0x24, 0x88, 0, 0, 0 }, 8); /* lea 136(%rsp), %rsp */
}

/* False: memory that one of them refers to is too far away. */
static bool write_displaced(struct writer *writer, uint64_t low, uint64_t high)
{
	struct instruction instruction;
	for (uint64_t at = low; at < high; at += instruction.length) {
		if (!instruction_at((const uint8_t *)at, high - at, at, &instruction))
			return false;
		uint64_t here = (uint64_t)writer->page + writer->at;
		write_bytes(writer, (const void *)at, instruction.length);
		if (!instruction.relative)
			continue;
		int64_t distance = (int64_t)(instruction.target - (here + instruction.length));
		int32_t narrow = (int32_t)distance;
		if (narrow != distance)
			return false;
		memcpy(writer->page + writer->at - instruction.length + instruction.distance_at, &narrow, 4);
	}
	return true;
}

static int make_detour(const char *name, struct place *place, const struct window *window)
{
	uint8_t *page = text_new_page(window->at);
	if (!page)
		return library_failed(-ENOMEM, "\"%s\": there is no memory near it", name);
	struct writer writer = { page, 0 };
	const uint64_t words[] = { (uint64_t)place, (uint64_t)library_probed };
	const uint64_t at = (uint64_t)page + PAGE - sizeof words;
	memcpy(page + PAGE - sizeof words, words, sizeof words);
	uint64_t end = window->at + window->length;
	bool near = true;
	if (window->returns)
		near = write_displaced(&writer, window->at, end - 1);
	write_call(&writer, at, at + 8);
	if (window->returns) {
		write_bytes(&writer, (const uint8_t[]){ RET }, 1);
	} else {
		near = window->is_nop || write_displaced(&writer, window->at, end);
		write_relative(&writer, (const uint8_t[]){ 0xe9 }, 1, window->is_nop ? window->at + ARCH_JUMP_BYTES : end);
	}
	if (!near || mprotect(page, PAGE, PROT_READ | PROT_EXEC)) {
		munmap(page, PAGE);
		return library_failed(near ? -EACCES : -ENOTSUP, "\"%s\": %s", name,
				      near ? "code cannot be made here" : "what an instruction there refers to is too far away");
	}
	place->detour = (uint64_t)page;
	return 0;
}

/* ---- places ---- */

static bool has_jump(const struct place *place)
{
	uint8_t jump[ARCH_JUMP_BYTES];
	arch_jump(jump, place->window, place->detour);
	return !memcmp((const void *)place->window, jump, sizeof jump);
}

/* Whether the code that it was made for is still there. Its library may have been closed meanwhile, and another one be
 * there. */
static bool is_there(const struct place *place)
{
	return function_is_loaded(place->window) &&
	       (has_jump(place) || !memcmp((const void *)place->window, place->before, place->length));
}

static struct place *known_place(uint64_t address)
{
	struct place *place = places;
	while (place && (place->address != address || !is_there(place)))
		place = place->next;
	return place;
}

/* Between change_begin and change_end. */
static int write_window(struct place *place, bool in)
{
	uint8_t jump[ARCH_JUMP_BYTES];
	arch_jump(jump, place->window, place->detour);
	if (place->is_nop) {
		struct nopal_poke poke = { .site = place->window };
		memcpy(poke.before, in ? place->before : jump, sizeof jump);
		memcpy(poke.after, in ? jump : place->before, sizeof jump);
		return text_poke(&poke, 1);
	}
	/* A handler may run these instructions. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = text_unprotect(place->window, place->length);
	if (!error)
		memcpy((void *)place->window, in ? jump : place->before, sizeof jump);
	text_protect();
	pthread_sigmask(SIG_SETMASK, &before, 0);
	return error;
}

static bool overlaps_known(const struct window *window)
{
	for (const struct place *place = places; place; place = place->next)
		if (window->at < place->window + place->length && place->window < window->at + window->length &&
		    function_is_loaded(place->window) && has_jump(place))
			return true;
	return false;
}

static bool is_marker(const struct window *window)
{
	struct found found;
	bool is_one = false;
	found_markers(0, 0, &found);
	for (size_t i = 0; i < found.place_count; i++)
		is_one |= found.places[i].kind == NOPAL_PLACE_PATCHED && window->at < found.places[i].place + ARCH_JUMP_BYTES &&
			  found.places[i].place < window->at + window->length;
	found_free(&found);
	return is_one;
}

/* Inserts its jump, unless it is inserted. */
static int ready_place(const char *name, struct place *place)
{
	if (has_jump(place))
		return 0;
	if (!place->is_nop && !process_is_alone())
		return library_failed(-EBUSY, "\"%s\" cannot be changed while there are other threads: only a NOP of 5 bytes at an "
					      "even address can", name);
	change_begin();
	int error = write_window(place, true);
	change_end();
	return error ? library_failed(error, "the text around \"%s\" cannot be changed: %s", name, strerror(-error)) : 0;
}

/* Makes a place with its jump, which leads to no function yet. */
static int new_place(const char *name, uint64_t address, const struct window *window, struct place **made)
{
	if (overlaps_known(window))
		return library_failed(-EBUSY, "\"%s\": a probe beside it needs the same bytes", name);
	if (is_marker(window))
		return library_failed(-EBUSY, "\"%s\": there is a marker, to which functions are connected by its name", name);
	struct place *place = calloc(1, sizeof *place);
	if (!place)
		return library_failed(-ENOMEM, "no memory");
	*place = (struct place){ .address = address, .window = window->at, .length = window->length, .is_nop = window->is_nop };
	memcpy(place->before, (const void *)window->at, window->length);
	int error = make_detour(name, place, window);
	if (error) {
		free(place);
		return error;
	}
	error = ready_place(name, place);
	if (error) {
		munmap((void *)place->detour, PAGE);
		free(place);
		return error;
	}
	place->next = places;
	places = place;
	*made = place;
	return 0;
}

/* Removes the jump if possible: threads may be anywhere. */
static void settle_place(struct place *place)
{
	bool unused = !place->connections || !place->connections->count;
	if (!unused || !function_is_loaded(place->window) || !has_jump(place) || !(place->is_nop || process_is_alone()))
		return;
	change_begin();
	write_window(place, false);
	change_end();
}

static int join_place(struct place *place, const struct connection *connection)
{
	struct connections *new = connections_changed(place->connections, SIZE_MAX, connection);
	if (!new)
		return library_failed(-ENOMEM, "no memory");
	change_begin();
	connections_replace(&place->connections, new);
	change_end();
	return 0;
}

/* Removes a connection from all places. Returns whether there was any. */
static bool leave_places(const struct connection *connection)
{
	bool left = false;
	for (struct place *place = places; place; place = place->next) {
		size_t at = connections_find(place->connections, connection);
		if (at == SIZE_MAX)
			continue;
		struct connections *new = connections_changed(place->connections, at, 0);
		if (!new)
			continue;
		change_begin();
		connections_replace(&place->connections, new);
		change_end();
		settle_place(place);
		left = true;
	}
	return left;
}

/* ---- the program's calls ---- */

/* Threads run the C library where they cannot run a probe: before they have their own memory, and after vfork. */
static int refuse_system(const char *name, const struct found_function *function)
{
	return function->is_system ? library_failed(-ENOTSUP, "\"%s\" is of the C library, or of libnopal", name) : 0;
}

/* Parses `NAME[+OFFSET]` or `0xADDRESS`, and finds the function that holds it. */
static int find_place(const char *text, struct found_function *function, uint64_t *address)
{
	char name[256];
	char *end;
	uint64_t number = strtoull(text, &end, 0);
	if (end != text && !*end) {
		*address = number;
		return find_function(0, number, function) ?
			refuse_system(text, function) :
			library_failed(-ENOENT, "no function of a symbol table has the address \"%s\"", text);
	}
	const char *plus = strrchr(text, '+');
	number = plus ? strtoull(plus + 1, &end, 0) : 0;
	size_t length = plus && plus[1] && !*end ? (size_t)(plus - text) : strlen(text);
	if (length >= sizeof name)
		return library_failed(-ENOENT, "no function \"%s\"", text);
	memcpy(name, text, length);
	name[length] = 0;
	if (length == strlen(text))
		number = 0;
	if (!find_function(name, 0, function)) {
		if (function->count > 1)
			return library_failed(-EINVAL, "\"%s\" is the name of %u functions: give an address", name, function->count);
		if (function->nearest.name[0])
			return library_failed(-ENOENT, "no function \"%s\"; the nearest is %s", name, function->nearest.name);
		return library_failed(-ENOENT, "no function \"%s\"", name);
	}
	*address = function->address + number;
	if (*address >= function->end)
		return library_failed(-EINVAL, "\"%s\" is %lu bytes long", name, function->end - function->address);
	return refuse_system(name, function);
}

static int unreadable(const char *name)
{
	return library_failed(-ENOTSUP, "\"%s\": an instruction of its function is not known", name);
}

/* Room that a compiler left at the function's entry may be behind an endbr64. */
static uint64_t at_room(const struct found_function *function, uint64_t address)
{
	static const uint8_t endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	uint64_t behind = address + sizeof endbr;
	bool has_room = address == function->address && behind + ARCH_JUMP_BYTES <= function->end &&
			!memcmp(function->bytes, endbr, sizeof endbr) && (is_nop(behind) || known_place(behind));
	return has_room ? behind : address;
}

static int probe_there(const char *text, const struct found_function *function, uint64_t address,
		       const struct connection *connection)
{
	struct place *place = known_place(address);
	if (place && connections_find(place->connections, connection) != SIZE_MAX)
		return library_failed(-EEXIST, "the probe is at \"%s\" already", text);
	if (place) {
		int error = ready_place(text, place);
		return error ? error : join_place(place, connection);
	}
	struct code code;
	struct window window;
	int error = read_code(function, &code) ? find_window(text, &code, address, &window) : unreadable(text);
	if (!error)
		error = new_place(text, address, &window, &place);
	free(code.starts);
	return error ? error : join_place(place, connection);
}

static int probe_at(const char *text, const struct connection *connection)
{
	struct found_function function;
	uint64_t address;
	int error = find_place(text, &function, &address);
	if (!error)
		error = probe_there(text, &function, at_room(&function, address), connection);
	free(function.bytes);
	return error;
}

/* Makes the window of a return, unless there is a place for it already. */
static int place_of_return(const char *name, const struct code *code, size_t number, struct window *window,
			   struct place **place)
{
	*place = known_place(code->starts[number]);
	return *place ? 0 : find_return(name, code, number, window);
}

static int check_returns(const char *name, const struct code *code)
{
	const struct found_function *function = code->function;
	size_t returns = 0;
	for (size_t i = 0; i < code->count; i++) {
		struct instruction instruction;
		struct window window;
		struct place *place;
		if (!instruction_of(code, code->starts[i], &instruction))
			return unreadable(name);
		if (instruction.kind == INSTRUCTION_UNKNOWN_JUMP ||
		    (instruction.kind == INSTRUCTION_JUMP &&
		     (instruction.target < function->address || instruction.target >= function->end)))
			return library_failed(-ENOTSUP, "\"%s+0x%lx\": a jump may leave the function", name,
					      code->starts[i] - function->address);
		if (instruction.kind != INSTRUCTION_RETURN)
			continue;
		returns++;
		int error = place_of_return(name, code, i, &window, &place);
		if (error)
			return error;
	}
	return returns ? 0 : library_failed(-ENOTSUP, "\"%s\" never returns", name);
}

/* All returns, or none. */
static int probe_returns(const char *name, const struct code *code, const struct connection *connection)
{
	int error = check_returns(name, code);
	for (size_t i = 0; i < code->count && !error; i++) {
		struct instruction instruction;
		struct window window;
		struct place *place;
		if (!instruction_of(code, code->starts[i], &instruction) || instruction.kind != INSTRUCTION_RETURN)
			continue;
		error = place_of_return(name, code, i, &window, &place);
		if (!error)
			error = place ? ready_place(name, place) : new_place(name, code->starts[i], &window, &place);
		if (!error)
			error = join_place(place, connection);
		if (error)
			leave_places(connection);
	}
	return error;
}

static bool is_in(const struct found_function *function, const struct connection *connection)
{
	for (const struct place *place = places; place; place = place->next)
		if (place->address >= function->address && place->address < function->end &&
		    connections_find(place->connections, connection) != SIZE_MAX)
			return true;
	return false;
}

static int probe_return(const char *name, const struct connection *connection)
{
	struct found_function function;
	struct code code = { 0 };
	uint64_t address;
	int error = find_place(name, &function, &address);
	if (!error && address != function.address)
		error = library_failed(-EINVAL, "\"%s\" is not where a function begins", name);
	else if (!error && is_in(&function, connection))
		error = library_failed(-EEXIST, "the probe is in \"%s\" already", name);
	else if (!error)
		error = read_code(&function, &code) ? probe_returns(name, &code, connection) : unreadable(name);
	free(code.starts);
	free(function.bytes);
	return error;
}

static int add_probe(int (*add)(const char *, const struct connection *), const char *place, nopal_register_probe *probe,
		     void *data)
{
	if (grace_depth())
		return library_failed(-EDEADLK, "a probe cannot place another");
	const struct connection connection = { (nopal_probe *)(void *)probe, data, is_general((nopal_probe *)(void *)probe) };
	pthread_mutex_lock(&library_lock);
	int error = connection_prepare(&connection);
	if (!error)
		error = add(place, &connection);
	connections_free_retired();
	pthread_mutex_unlock(&library_lock);
	return error;
}

int nopal_probe_at(const char *place, nopal_register_probe *probe, void *data)
{
	return add_probe(probe_at, place, probe, data);
}

int nopal_probe_return(const char *function, nopal_register_probe *probe, void *data)
{
	return add_probe(probe_return, function, probe, data);
}

int nopal_unprobe(nopal_register_probe *probe, void *data)
{
	if (grace_depth())
		return library_failed(-EDEADLK, "a probe cannot wait until it has ended");
	const struct connection connection = { .probe = (nopal_probe *)(void *)probe, .data = data };
	pthread_mutex_lock(&library_lock);
	bool left = leave_places(&connection);
	connections_free_retired();
	pthread_mutex_unlock(&library_lock);
	return left ? 0 : library_failed(-ENOENT, "the probe is nowhere");
}
