// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Takes the tool's plan, and trusts nothing in it. The kernel itself is asked what a function is, where its
 * instructions are, and whether others change its bytes.
 */
#include <linux/kallsyms.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include "module.h"

#define ENDBR_BYTES 4
#define INSTRUCTION_BYTES 15

/* The target of the jump that is this exit; 0 if the exit is a return instruction. False: its bytes are no such
 * exit. */
static bool find_target(const struct nopal_device_exit *exit, unsigned long *target)
{
	static const uint8_t padding[] = { 0xcc, 0xcc, 0xcc, 0xcc };
	const uint8_t *bytes = exit->expected;
	*target = 0;
	if (exit->kind == NOPAL_EXIT_RETURN && bytes[0] == 0xc3 && !memcmp(bytes + 1, padding, 4))
		return true;
	if (bytes[0] == 0xe9)
		*target = exit->address + 5 + *(int32_t *)(bytes + 1);
	else if (exit->kind == NOPAL_EXIT_TAIL && bytes[0] == 0xeb && !memcmp(bytes + 2, padding, 3))
		*target = exit->address + 2 + (int8_t)bytes[1];
	return *target && (exit->kind == NOPAL_EXIT_RETURN || (exit->kind == NOPAL_EXIT_TAIL && *target == exit->target));
}

/* Thunks are not larger. Names take a while. */
#define THUNK_BYTES 64

static bool ends(const char *name, const char *end)
{
	size_t length = strlen(name), of_end = strlen(end);
	return length >= of_end && !strcmp(name + length - of_end, end);
}

/* Whether an exit of this kind may lead there. A return may lead to a return thunk; a tail jump to the begin of a
 * function, except a thunk that jumps to the address in r10 or r11, which nopal_tail uses. The kernel tells the first of
 * an address's names: newer ones have __pi___x86_indirect_thunk_r11 before __x86_indirect_thunk_r11. */
static bool may_lead_to(uint8_t kind, unsigned long target)
{
	char buffer[KSYM_NAME_LEN];
	unsigned long size, offset;
	char *module;
	if (!nopal_symbols.is_text(target) || !nopal_symbols.size_offset(target, &size, &offset) || offset)
		return false;
	if (kind == NOPAL_EXIT_TAIL && size > THUNK_BYTES)
		return true;
	const char *name = nopal_symbols.name(target, &size, &offset, &module, buffer);
	if (!name)
		return false;
	if (kind == NOPAL_EXIT_RETURN)
		return ends(name, "_return_thunk") || !strcmp(name, "__x86_return_skl");
	return !strstr(name, "__x86_indirect_") || (!ends(name, "_r10") && !ends(name, "_r11"));
}

/* A part of a function: all of it, or code that the compiler has moved away from it. */
struct part {
	unsigned long first, end;
};

/* Finds the cold part that holds `address`, which the compiler has moved away. The kernel knows it as NAME.cold, by one
 * of the function's names. */
static bool find_cold_part(unsigned long address, struct part *part)
{
	char buffer[KSYM_NAME_LEN];
	unsigned long size, offset;
	char *module;
	const char *found = nopal_symbols.name(address, &size, &offset, &module, buffer);
	if (!found || !strstr(found, ".cold"))
		return false;
	*part = (struct part){ address - offset, address - offset + size };
	return true;
}

/* Whether each of these exits, in order, is an instruction of the part. */
static bool are_instructions(struct part part, const struct nopal_device_exit *exits, uint32_t count)
{
	uint32_t at = 0;
	unsigned long address = part.first;
	while (at < count && address < part.end) {
		struct insn instruction;
		while (at < count && exits[at].address == address)
			at++;
		int room = min_t(unsigned long, INSTRUCTION_BYTES, part.end - address);
		if (nopal_symbols.decode(&instruction, (void *)address, room, INSN_MODE_KERN))
			return false;
		address += instruction.length;
	}
	return at == count;
}

static bool is_in(struct part part, const struct nopal_device_exit *exit)
{
	return exit->address >= part.first && exit->address + NOPAL_SITE_BYTES <= part.end;
}

/* The exits of each part follow each other, in order of their addresses. */
static bool exits_have_places(const struct nopal_device_function *function, const struct nopal_device_exit *exits)
{
	for (uint32_t at = 0; at < function->exits;) {
		struct part part = { function->address, function->end };
		if (!is_in(part, &exits[at]) && !find_cold_part(exits[at].address, &part))
			return false;
		uint32_t count = 0;
		while (at + count < function->exits && is_in(part, &exits[at + count])) {
			if (count && exits[at + count].address < exits[at + count - 1].address + NOPAL_SITE_BYTES)
				return false;
			count++;
		}
		if (!count || !are_instructions(part, exits + at, count))
			return false;
		at += count;
	}
	return true;
}

/* The entry of a function that a livepatch has replaced returns to the begin of the new function, whose word would then
 * be found. */
static bool is_of_livepatch(unsigned long address)
{
	preempt_disable();
	struct module *module = nopal_symbols.module_at(address);
	bool is = module && is_livepatch_module(module);
	preempt_enable();
	return is;
}

/* Whether it is of a module that is being loaded or unloaded, or has gone, or of the begin of one, which is freed after it
 * has run. */
static bool is_passing(unsigned long address)
{
	preempt_disable();
	const struct module *module = nopal_symbols.module_at(address);
	bool is = module ? module->state != MODULE_STATE_LIVE || within_module_init(address, module) :
			   address >= MODULES_VADDR && address < MODULES_END;
	preempt_enable();
	return is;
}

static uint8_t judge(const struct nopal_device_function *function, const struct nopal_device_exit *exits,
		     unsigned long *site)
{
	unsigned long size, offset, address = function->address;
	if (is_passing(address))
		return NOPAL_VERDICT_GONE;
	if (!nopal_symbols.size_offset(address, &size, &offset) || offset || function->end > address + size ||
	    function->end <= address)
		return NOPAL_VERDICT_ADDRESS;
	*site = nopal_symbols.ftrace_location(address);
	if (*site != address && *site != address + ENDBR_BYTES)
		return NOPAL_VERDICT_ADDRESS;
	if (within_module(address, THIS_MODULE) || is_of_livepatch(address) || nopal_symbols.probes_refuse(address) ||
	    nopal_is_of_breakpoints(address))
		return NOPAL_VERDICT_NEVER;
	for (uint32_t i = 0; i < function->exits; i++) {
		unsigned long at = exits[i].address;
		/* The address is checked before its bytes are read. */
		if (!nopal_symbols.is_text(at) || !nopal_symbols.is_text(at + NOPAL_SITE_BYTES - 1))
			return NOPAL_VERDICT_PLACE;
		unsigned long target;
		if (memcmp((void *)at, exits[i].expected, NOPAL_SITE_BYTES) || !find_target(&exits[i], &target))
			return NOPAL_VERDICT_BYTES;
		if (target && !may_lead_to(exits[i].kind, target))
			return NOPAL_VERDICT_TARGET;
		if (nopal_is_held(at, at + NOPAL_SITE_BYTES - 1))
			return NOPAL_VERDICT_HELD;
	}
	if (!exits_have_places(function, exits))
		return NOPAL_VERDICT_PLACE;
	if (nopal_function_at(address))
		return NOPAL_VERDICT_TWICE;
	if (nopal_exit_count + function->exits > NOPAL_DEVICE_EXITS)
		return NOPAL_VERDICT_ROOM;
	return NOPAL_VERDICT_TRACED;
}

/* A function that a later plan may hold again takes no room. */
static uint8_t add(const struct nopal_device_function *function, const struct nopal_device_exit *exits)
{
	unsigned long site = 0;
	uint8_t verdict = judge(function, exits, &site);
	if (verdict == NOPAL_VERDICT_GONE || verdict == NOPAL_VERDICT_TWICE)
		return verdict;
	if (nopal_function_count == NOPAL_DEVICE_FUNCTIONS)
		return NOPAL_VERDICT_ROOM;
	struct nopal_function *added = &nopal_functions[nopal_function_count++];
	*added = (struct nopal_function){
		.address = function->address,
		.end = function->end,
		.site = site,
		.first_exit = nopal_exit_count,
		.verdict = verdict,
	};
	if (verdict != NOPAL_VERDICT_TRACED)
		return verdict;
	int failed = nopal_function_know(nopal_function_count - 1);
	if (failed) {
		added->verdict = failed == -EBUSY ? NOPAL_VERDICT_NEAR : NOPAL_VERDICT_ROOM;
		return added->verdict;
	}
	added->exits = function->exits;
	for (uint32_t i = 0; i < function->exits; i++) {
		struct nopal_exit *exit = &nopal_exits[nopal_exit_count++];
		*exit = (struct nopal_exit){
			.address = exits[i].address,
			.target = exits[i].target,
			.kind = exits[i].kind,
		};
		memcpy(exit->before, exits[i].expected, NOPAL_SITE_BYTES);
	}
	return verdict;
}

static void *copied(uint64_t from, uint32_t count, size_t size)
{
	void *to = kvmalloc_array(max(count, 1u), size, GFP_KERNEL);
	if (to && copy_from_user(to, (void __user *)from, count * size)) {
		kvfree(to);
		return 0;
	}
	return to;
}

int nopal_plan_take(struct nopal_device_plan *plan)
{
	if (plan->version != NOPAL_DEVICE_VERSION)
		return -EPROTO;
	if (plan->modules != nopal_modules.come)
		return -EAGAIN;
	if (plan->function_count > NOPAL_DEVICE_FUNCTIONS || plan->exit_count > 4 * NOPAL_DEVICE_EXITS)
		return -E2BIG;
	struct nopal_device_function *functions = copied(plan->functions, plan->function_count, sizeof *functions);
	struct nopal_device_exit *exits = copied(plan->exits, plan->exit_count, sizeof *exits);
	uint32_t room = min_t(uint32_t, plan->function_count, NOPAL_DEVICE_FUNCTIONS - nopal_function_count);
	plan->first_site = nopal_function_count + 1;
	int failed = functions && exits ? nopal_functions_reserve(room, plan->exit_count) : -EFAULT;
	for (uint32_t i = 0; !failed && i < plan->function_count; i++) {
		const struct nopal_device_function *function = &functions[i];
		if (function->first_exit > plan->exit_count || function->exits > plan->exit_count - function->first_exit ||
		    (i && function->address <= functions[i - 1].address)) {
			failed = -EINVAL;
		} else {
			uint8_t verdict = add(function, exits + function->first_exit);
			failed = put_user(verdict, (uint8_t __user *)plan->verdicts + i);
		}
		cond_resched();
	}
	if (!failed)
		nopal_modules.planned = plan->modules;
	kvfree(functions);
	kvfree(exits);
	return failed;
}
