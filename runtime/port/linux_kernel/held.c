// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Text that the kernel itself changes: jump labels, static calls, alternatives, kprobes. The kernel's own check walks
 * all jump labels each time, which is too slow for 60,000 sites.
 */
#include <linux/jump_label.h>
#include <linux/sort.h>
#include <linux/static_call_types.h>
#include <linux/vmalloc.h>
#include "module.h"

#define LONGEST 5       /* of what they change */
#define SHORT 2

/* Addresses in the kernel's own text, in order. */
static unsigned long *held;             /* these two are written at load alone */
static uint32_t held_count;

/* What the kernel calls on the way to our notifier of breakpoints, and permits probes in. */
static const char *const of_breakpoints[] = { "__rcu_read_lock", "__rcu_read_unlock", "rcu_read_unlock_special",
					      "hw_breakpoint_exceptions_notify" };
/* 0: this kernel has no such function. Written at load alone. */
static unsigned long breakpoints[ARRAY_SIZE(of_breakpoints)];

static int by_address(const void *one, const void *other)
{
	unsigned long first = *(const unsigned long *)one, second = *(const unsigned long *)other;
	return first < second ? -1 : first > second;
}

static unsigned long address_of(const struct static_call_site *site)
{
	return (unsigned long)&site->addr + site->addr;
}

int nopal_held_begin(unsigned long (*find)(const char *))
{
	const struct jump_entry *label = (void *)find("__start___jump_table"), *last_label = (void *)find("__stop___jump_table");
	const struct static_call_site *call = (void *)find("__start_static_call_sites");
	const struct static_call_site *last_call = (void *)find("__stop_static_call_sites");
	if (!label || !last_label || !call || !last_call)
		return -ENOENT;
	for (int i = 0; i < ARRAY_SIZE(breakpoints); i++)
		breakpoints[i] = find(of_breakpoints[i]);
	held = vmalloc(((last_label - label) + (last_call - call) + 1) * sizeof *held);
	if (!held)
		return -ENOMEM;
	for (; label < last_label; label++)
		held[held_count++] = jump_entry_code(label);
	for (; call < last_call; call++)
		held[held_count++] = address_of(call);
	sort(held, held_count, sizeof *held, by_address, 0);
	return 0;
}

void nopal_held_end(void)
{
	vfree(held);
}

/*
 * Whether the instruction that is changed at `address` reaches into [first, last]. A jump label may be a short jump, or
 * a NOP as long. Labels of a module's init code stay in its table after that code is unmapped, so only near ones are
 * read.
 */
static bool reaches(unsigned long address, unsigned long first, unsigned long last)
{
	const uint8_t *code = (const uint8_t *)address;
	if (address > last || address + LONGEST <= first)
		return false;
	bool is_short = code[0] == 0xeb || (code[0] == 0x66 && code[1] == 0x90);
	return address + (is_short ? SHORT : LONGEST) > first;
}

static bool kernel_holds(unsigned long first, unsigned long last)
{
	uint32_t low = 0, high = held_count;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (held[middle] + LONGEST <= first)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < held_count && held[low] <= last; low++)
		if (reaches(held[low], first, last))
			return true;
	return false;
}

static bool module_holds(unsigned long first, unsigned long last)
{
	bool found = false;
	preempt_disable();
	const struct module *module = nopal_symbols.module_at(first);
	for (unsigned int i = 0; module && i < module->num_jump_entries; i++)
		found |= reaches(jump_entry_code(&module->jump_entries[i]), first, last);
	for (int i = 0; module && i < module->num_static_call_sites; i++)
		found |= reaches(address_of(&module->static_call_sites[i]), first, last);
	preempt_enable();
	return found;
}

bool nopal_is_of_breakpoints(unsigned long address)
{
	for (int i = 0; i < ARRAY_SIZE(breakpoints); i++)
		if (breakpoints[i] == address)
			return true;
	return false;
}

bool nopal_is_held(unsigned long first, unsigned long last)
{
	for (unsigned long at = first; at <= last; at++)
		if (nopal_symbols.probe_at((void *)at))
			return true;
	return kernel_holds(first, last) || module_holds(first, last) ||
	       (nopal_symbols.alternatives_hold && nopal_symbols.alternatives_hold((void *)first, (void *)last));
}
