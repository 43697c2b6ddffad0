// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Functions of the kernel that it does not export, by their names.
 */
#include <linux/kprobes.h>
#include "arch.h"
#include "module.h"

struct nopal_symbols nopal_symbols;

/* A kprobe on a function tells its address. Modules have no other way. */
static unsigned long (*find_by_kprobe(void))(const char *)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	if (register_kprobe(&probe))
		return 0;
	unsigned long (*found)(const char *) = (void *)probe.addr;
	unregister_kprobe(&probe);
	return found;
}

static uint32_t gates;

uint8_t *nopal_gate(void)
{
	return gates < NOPAL_GATES ? nopal_slot(NOPAL_DEVICE_EXITS + gates++) : 0;
}

/* An address that leads to `function` and may be called through a pointer. */
static void *gate_to(unsigned long function)
{
	uint8_t *gate = nopal_gate();
	uint8_t bytes[NOPAL_SLOT_BYTES] = { 0xf3, 0x0f, 0x1e, 0xfa };
	/* Otherwise the build would take the address of the jump for that of a function. */
	OPTIMIZER_HIDE_VAR(gate);
	arch_jump(bytes + 4, (uint64_t)gate + 4, function);
	memset(bytes + 9, 0xcc, sizeof bytes - 9);
	return nopal_text_fill(gate, bytes, sizeof bytes) ? 0 : gate;
}

static void *needed(unsigned long (*find)(const char *), const char *name)
{
	unsigned long address = find(name);
	void *gate = address ? gate_to(address) : 0;
	if (!gate)
		pr_err("nopal: this kernel has no %s\n", name);
	return gate;
}

int nopal_symbols_find(void)
{
	unsigned long (*find)(const char *) = find_by_kprobe();
	if (!find) {
		pr_err("nopal: kprobes are needed to find the kernel's symbols\n");
		return -ENOENT;
	}
	/* The first call is to a function whose address the kernel itself takes. */
	struct nopal_symbols *symbols = &nopal_symbols;
	symbols->find = find;
	symbols->text_mutex = (void *)find("text_mutex");
	symbols->module_mutex = (void *)find("module_mutex");
	symbols->modules = (void *)find("modules");
	symbols->size_offset = needed(find, "kallsyms_lookup_size_offset");
	symbols->name = needed(find, "kallsyms_lookup");
	symbols->decode = needed(find, "insn_decode");
	symbols->ftrace_location = needed(find, "ftrace_location");
	symbols->module_at = needed(find, "__module_address");
	symbols->probes_refuse = needed(find, "within_kprobe_blacklist");
	symbols->probe_at = needed(find, "get_kprobe");
	symbols->shows_addresses = needed(find, "kallsyms_show_value");
	symbols->is_text = needed(find, "kernel_text_address");
	symbols->each_of_kernel = needed(find, "kallsyms_on_each_symbol");
	symbols->each_of_modules = needed(find, "module_kallsyms_on_each_symbol");
	symbols->stop_machine = needed(find, "stop_machine_cpuslocked");
	unsigned long rude = find("synchronize_rcu_tasks_rude");
	symbols->wait_for_tasks_rude = rude ? gate_to(rude) : 0;
	unsigned long alternatives_hold = find("alternatives_text_reserved");
	symbols->alternatives_hold = alternatives_hold ? gate_to(alternatives_hold) : 0;
	bool all = symbols->text_mutex && symbols->module_mutex && symbols->modules && symbols->size_offset && symbols->name &&
		   symbols->decode && symbols->ftrace_location && symbols->module_at &&
		   symbols->probes_refuse && symbols->probe_at && symbols->is_text && symbols->shows_addresses &&
		   symbols->stop_machine &&
		   symbols->each_of_kernel && symbols->each_of_modules;
	return all ? nopal_held_begin(find) : -ENOENT;
}
