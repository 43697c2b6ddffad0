/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * What unwinders are told about generated code. They look an address up by _dl_find_object, or by dl_iterate_phdr in
 * older ones and in LLVM's, and we answer in the loader's place for our own blocks: nothing is registered, nothing is
 * allocated, and nothing stays behind.
 */
#include "stubs.h"

static const struct nopal_block *block_of(uint64_t address)
{
	struct nopal_process *process = nopal_process;
	/* Acquire pairs with the tool's writes: blocks first, then their count. */
	uint32_t count = __atomic_load_n(&process->block_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count && i < NOPAL_BLOCKS; i++)
		if (address - process->blocks[i].low < process->blocks[i].high - process->blocks[i].low)
			return &process->blocks[i];
	return 0;
}

static const struct nopal_unwinder *unwinder_of(uint64_t address)
{
	struct nopal_process *process = nopal_process;
	uint32_t count = __atomic_load_n(&process->unwinder_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count && i < NOPAL_UNWINDERS; i++)
		if (address - process->unwinders[i].low < process->unwinders[i].high - process->unwinders[i].low)
			return &process->unwinders[i];
	return 0;
}

int nopal_is_generated(uint64_t address)
{
	return block_of(address) != 0;
}

int nopal_find_object(uint64_t address, struct nopal_found_object *found, nopal_find_object_function *original)
{
	const struct nopal_block *block = block_of(address);
	if (!block)
		return original(address, found);
	*found = (struct nopal_found_object){
		.map_start = block->low,
		.map_end = block->high,
		.eh_frame_header = block->header,
	};
	return 0;
}

/* The head of struct dl_phdr_info and struct Elf64_Phdr, as the ELF and Linux ABIs have them. */
struct program_header {
	uint32_t type;
	uint32_t flags;
	uint64_t offset;
	uint64_t address;
	uint64_t physical;
	uint64_t file_size;
	uint64_t memory_size;
	uint64_t align;
};
struct nopal_object_info {
	uint64_t base;
	const char *name;
	const struct program_header *headers;
	uint16_t header_count;
	uint64_t adds;
	uint64_t subs;
	uint64_t tls_module;
	void *tls_data;
};
#define TYPE_LOAD 1
#define TYPE_EH_FRAME 0x6474e550

/* Only an unwinder gets to see our blocks; a program that lists its libraries finds what it would without us. */
int nopal_iterate_objects(nopal_object_callback *callback, void *data, nopal_iterate_objects_function *original)
{
	uint64_t caller = (uint64_t)__builtin_return_address(0);
	int answer = original(callback, data);
	if (answer || !unwinder_of(caller))
		return answer;
	struct nopal_process *process = nopal_process;
	uint32_t count = __atomic_load_n(&process->block_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count && i < NOPAL_BLOCKS && !answer; i++) {
		const struct nopal_block *block = &process->blocks[i];
		struct program_header headers[2] = {
			{ .type = TYPE_LOAD, .flags = 5, .address = block->low,
			  .memory_size = block->high - block->low, .file_size = block->high - block->low },
			{ .type = TYPE_EH_FRAME, .flags = 4, .address = block->header, .memory_size = 4 },
		};
		struct nopal_object_info info = { .name = "", .headers = headers, .header_count = 2 };
		answer = callback(&info, sizeof info, data);
	}
	return answer;
}

/* _Unwind_Reason_Code and _Unwind_Action, as the Itanium C++ ABI numbers them. */
enum { CONTINUE_UNWIND = 8, INSTALL_CONTEXT = 7 };
enum { CLEANUP_PHASE = 2 };

extern const char nopal_landing[] __attribute__((visibility("hidden")));

/* Sends an exception that passes through a wrapped frame to the landing pad. Elsewhere in generated code (a throw from
 * a signal handler that interrupted it) there is nothing to record: the unwinder goes on. */
int nopal_personality(int version, int actions, uint64_t class, void *exception, void *context)
{
	(void)version;
	(void)class;
	const struct nopal_unwinder *unwinder = unwinder_of((uint64_t)__builtin_return_address(0));
	if (!(actions & CLEANUP_PHASE) || !unwinder)
		return CONTINUE_UNWIND;
	uint64_t address = ((uint64_t (*)(void *))unwinder->get_address)(context);
	/* lea -8(%rsp), %rsp: what stands where a wrapped function returns to, and nowhere else in a thunk. */
	static const unsigned char after_call[5] = { 0x48, 0x8d, 0x64, 0x24, 0xf8 };
	if (!nopal_is_generated(address))
		return CONTINUE_UNWIND;
	for (unsigned i = 0; i < sizeof after_call; i++)
		if (((const unsigned char *)address)[i] != after_call[i])
			return CONTINUE_UNWIND;
	((void (*)(void *, int, uint64_t))unwinder->set_register)(context, 0, (uint64_t)exception);
	uint64_t number = (uint64_t)(unwinder - nopal_process->unwinders);
	((void (*)(void *, int, uint64_t))unwinder->set_register)(context, 1, address | number << NOPAL_UNWINDER_SHIFT);
	((void (*)(void *, uint64_t))unwinder->set_address)(context, (uint64_t)nopal_landing);
	return INSTALL_CONTEXT;
}
