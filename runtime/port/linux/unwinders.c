/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * How unwinders find generated code. They look an address up by _dl_find_object, or by dl_iterate_phdr in older ones and in
 * LLVM's, and we answer in the loader's place for our own blocks: nothing is registered, nothing is allocated, and nothing
 * stays behind.
 */
#include "hooks.h"

int nopal_find_object(uint64_t address, struct nopal_found_object *found, nopal_find_object_function *original)
{
	const struct nopal_block *block = nopal_block_of(address);
	if (!block)
		return original(address, found);
	*found = (struct nopal_found_object){
		.map_start = block->low,
		.map_end = block->high,
		.eh_frame_header = block->header,
	};
	return 0;
}

/* The head of struct dl_phdr_info, and struct Elf64_Phdr, by the ELF and Linux ABIs. */
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

/* Only unwinders see our blocks; a program that lists its libraries does not. An unwinder is known by its callback: its
 * call may come from elsewhere, such as from the loader if that audits calls (LD_AUDIT), or from a function that stands
 * before libc's. */
int nopal_iterate_objects(nopal_object_callback *callback, void *data, nopal_iterate_objects_function *original)
{
	int answer = original(callback, data);
	if (answer || !nopal_unwinder_of((uint64_t)callback))
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
