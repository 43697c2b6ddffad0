/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Unwinding through generated code, as far as it is the same for all loaders: which code is generated, and where an
 * exception that passes through it goes on.
 */
#include "arch.h"
#include "stubs.h"

const struct nopal_block *nopal_block_of(uint64_t address)
{
	struct nopal_process *process = nopal_process;
	/* Acquire pairs with the tool's writes: blocks first, then their count. */
	uint32_t count = __atomic_load_n(&process->block_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count && i < NOPAL_BLOCKS; i++)
		if (address - process->blocks[i].low < process->blocks[i].high - process->blocks[i].low)
			return &process->blocks[i];
	return 0;
}

const struct nopal_unwinder *nopal_unwinder_of(uint64_t address)
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
	return nopal_block_of(address) != 0;
}

/* _Unwind_Reason_Code and _Unwind_Action, as the Itanium C++ ABI numbers them. */
enum { CONTINUE_UNWIND = 8, INSTALL_CONTEXT = 7 };
enum { CLEANUP_PHASE = 2 };

extern const char nopal_landing[] __attribute__((visibility("hidden")));

/* Sends an exception that passes through a wrapped frame to the landing pad. Elsewhere in generated code (an exception
 * from a signal handler that interrupted it) there is nothing to record, and unwinding continues. */
int nopal_personality(int version, int actions, uint64_t class, void *exception, void *context)
{
	(void)version;
	(void)class;
	const struct nopal_unwinder *unwinder = nopal_unwinder_of((uint64_t)__builtin_return_address(0));
	if (!(actions & CLEANUP_PHASE) || !unwinder)
		return CONTINUE_UNWIND;
	uint64_t address = ((uint64_t (*)(void *))unwinder->get_address)(context);
	if (!nopal_is_generated(address) || !arch_is_wrapped_return((const uint8_t *)address))
		return CONTINUE_UNWIND;
	int data[] = { __builtin_eh_return_data_regno(0), __builtin_eh_return_data_regno(1) };
	((void (*)(void *, int, uint64_t))unwinder->set_register)(context, data[0], (uint64_t)exception);
	uint64_t number = (uint64_t)(unwinder - nopal_process->unwinders);
	((void (*)(void *, int, uint64_t))unwinder->set_register)(context, data[1], address | number << NOPAL_UNWINDER_SHIFT);
	((void (*)(void *, uint64_t))unwinder->set_address)(context, (uint64_t)nopal_landing);
	return INSTALL_CONTEXT;
}
