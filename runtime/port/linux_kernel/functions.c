// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Makes exactly the wanted functions record.
 *
 * Functions are switched on in this order: their words, slots, exits, entries; and off in reverse. So an exit may be
 * recorded without its entry, as for each call that began before, but no entry without its exit.
 *
 * An entry is a call that ftrace inserts for an ftrace_ops: of the trampoline that the ftrace_ops brings, which is the
 * recorder itself; or of ftrace's own, which calls the functions of all, where other tracers have this function, too. A group
 * is inserted and removed at once; the recorder skips functions of it that go until all have gone.
 */
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/rcupdate.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>
#include <linux/xarray.h>
#include "arch.h"
#include "kernels.h"
#include "module.h"

struct nopal_function *nopal_functions;
uint32_t nopal_function_count;
struct nopal_exit *nopal_exits;
uint32_t nopal_exit_count;
struct nopal_device_modules nopal_modules = { .planned = ~0u };
static uint32_t function_room, exit_room;        /* under nopal_lock */
/* The same: whether arguments and results are recorded, whether functions that nobody wants record, too, and whether
 * all are being removed. */
static bool with_arguments, uniform, all_go;

/* For the upper half of the upper 4 GiB, where the kernel and its modules are. */
#define LEAVES 0x8000
#define LEAF_WORDS 4096
#define ENDBR_BYTES 4
uint32_t *nopal_leaves[LEAVES];
/* For places where nopal knows no function: an entry returns there if another tool, a livepatch say, redirects the
 * call. */
static uint32_t nothing[LEAF_WORDS];

/* A group of functions whose entries were inserted together. */
struct entries {
	struct list_head list;
	struct ftrace_ops ops;
	uint32_t *functions;
	uint32_t count;
};
static LIST_HEAD(all_entries);

/* ---- what is known ---- */

/* The place of a function's word: the recorder finds it by the address that the fentry site returns to. */
static unsigned long place_of(unsigned long site)
{
	return (uint32_t)(site + NOPAL_SITE_BYTES) / 16;
}

static DEFINE_XARRAY(by_place);

struct nopal_function *nopal_function_at(unsigned long address)
{
	static const unsigned long distances[] = { 0, ENDBR_BYTES };
	for (uint32_t i = 0; i < ARRAY_SIZE(distances); i++) {
		void *index = xa_load(&by_place, place_of(address + distances[i]));
		if (index && nopal_functions[xa_to_value(index)].address == address)
			return &nopal_functions[xa_to_value(index)];
	}
	return 0;
}

int nopal_function_know(uint32_t index)
{
	unsigned long place = place_of(nopal_functions[index].site);
	uint32_t **leaf = &nopal_leaves[place / LEAF_WORDS - LEAVES];
	if (*leaf == nothing) {
		uint32_t *words = vzalloc(LEAF_WORDS * sizeof *words);
		if (!words)
			return -ENOMEM;
		*leaf = words;
	}
	return xa_insert(&by_place, place, xa_mk_value(index), GFP_KERNEL);
}

static void *grown(void *from, size_t used, size_t bytes)
{
	void *to = vzalloc(bytes);
	if (to && from)
		memcpy(to, from, used);
	if (to)
		vfree(from);
	return to;
}

int nopal_functions_reserve(uint32_t functions, uint32_t exits)
{
	uint32_t wanted = nopal_function_count + functions;
	if (wanted > function_room) {
		void *to = grown(nopal_functions, nopal_function_count * sizeof *nopal_functions, wanted * sizeof *nopal_functions);
		if (!to)
			return -ENOMEM;
		nopal_functions = to;
		function_room = wanted;
	}
	wanted = nopal_exit_count + exits;
	if (wanted > exit_room) {
		void *to = grown(nopal_exits, nopal_exit_count * sizeof *nopal_exits, wanted * sizeof *nopal_exits);
		if (!to)
			return -ENOMEM;
		nopal_exits = to;
		exit_room = wanted;
	}
	return 0;
}

/* ---- words ---- */

static uint32_t word_of(uint32_t index, uint32_t kind)
{
	return (index + 1) << 4 | kind;
}

static uint32_t *word_at(const struct nopal_function *function)
{
	unsigned long place = place_of(function->site);
	return &nopal_leaves[place / LEAF_WORDS - LEAVES][place % LEAF_WORDS];
}

/* ---- exits ---- */

static void slot_bytes(uint32_t number, uint32_t index, uint8_t bytes[NOPAL_SLOT_BYTES])
{
	const struct nopal_exit *exit = &nopal_exits[number];
	uint64_t slot = (uint64_t)nopal_slot(number);
	bool with_result = with_arguments && exit->kind == NOPAL_EXIT_RETURN;
	uint32_t word = word_of(index, with_result ? NOPAL_KIND_EXIT_RESULT : NOPAL_KIND_EXIT);
	memset(bytes, 0xcc, NOPAL_SLOT_BYTES);
	bytes[0] = 0x41;
	bytes[1] = 0xbb;
	memcpy(bytes + 2, &word, sizeof word);
	if (exit->kind == NOPAL_EXIT_RETURN) {
		arch_jump(bytes + 6, slot + 6, (uint64_t)(with_result ? nopal_return_result : nopal_return));
	} else {
		arch_jump(bytes + 6, slot + 6, (uint64_t)nopal_tail);
		bytes[6] = 0xe8;
		arch_jump(bytes + 11, slot + 11, exit->target);
	}
}

#define SLOTS_AT_ONCE 16384

/* Fills the slots of functions in order of their indices; exits that follow each other at once. */
static int fill_slots(const uint32_t *functions, uint32_t count)
{
	uint8_t *bytes = kvmalloc_array(SLOTS_AT_ONCE, NOPAL_SLOT_BYTES, GFP_KERNEL);
	uint32_t first = 0, used = 0;
	int failed = bytes ? 0 : -ENOMEM;
	for (uint32_t i = 0; !failed && i < count; i++) {
		const struct nopal_function *function = &nopal_functions[functions[i]];
		for (uint32_t exit = function->first_exit; !failed && exit < function->first_exit + function->exits; exit++) {
			if (used == SLOTS_AT_ONCE || (used && exit != first + used)) {
				failed = nopal_text_fill(nopal_slot(first), bytes, used * NOPAL_SLOT_BYTES);
				used = 0;
			}
			if (!used)
				first = exit;
			slot_bytes(exit, functions[i], bytes + used++ * NOPAL_SLOT_BYTES);
		}
		cond_resched();
	}
	if (!failed && used)
		failed = nopal_text_fill(nopal_slot(first), bytes, used * NOPAL_SLOT_BYTES);
	kvfree(bytes);
	return failed;
}

static int by_change(const void *one, const void *other)
{
	const struct nopal_change *first = one, *second = other;
	return first->address < second->address ? -1 : first->address > second->address;
}

static void change_of(uint32_t number, bool on, struct nopal_change *change)
{
	const struct nopal_exit *exit = &nopal_exits[number];
	uint8_t jump[NOPAL_SITE_BYTES];
	arch_jump(jump, exit->address, (uint64_t)nopal_slot(number));
	*change = (struct nopal_change){ .address = exit->address, .length = NOPAL_SITE_BYTES };
	memcpy(change->before, on ? exit->before : jump, NOPAL_SITE_BYTES);
	memcpy(change->after, on ? jump : exit->before, NOPAL_SITE_BYTES);
}

/* Changes the exits of these functions that are not yet so. Where other bytes stand now, the exit is left to their
 * owner. */
static int change_exits(const uint32_t *functions, uint32_t count, bool on)
{
	uint32_t total = 0, used = 0;
	for (uint32_t i = 0; i < count; i++)
		total += nopal_functions[functions[i]].exits;
	if (!total)
		return 0;
	struct nopal_change *changes = kvmalloc_array(total, sizeof *changes, GFP_KERNEL);
	int failed = changes ? 0 : -ENOMEM;
	for (uint32_t i = 0; !failed && i < count; i++) {
		const struct nopal_function *function = &nopal_functions[functions[i]];
		for (uint32_t number = function->first_exit; number < function->first_exit + function->exits; number++)
			if (nopal_exits[number].set != on)
				change_of(number, on, &changes[used++]);
	}
	if (!failed && used) {
		sort(changes, used, sizeof *changes, by_change, 0);
		failed = nopal_text_change(changes, used);
		/* Found again by their slots: the numbers of the changes are not those of the exits any more. */
		for (uint32_t i = 0; i < used; i++) {
			const uint8_t *jump = on ? changes[i].after : changes[i].before;
			uint64_t slot = changes[i].address + NOPAL_SITE_BYTES + *(int32_t *)(jump + 1);
			uint32_t number = (slot - (uint64_t)nopal_slots) / NOPAL_SLOT_BYTES;
			if (changes[i].done)
				nopal_exits[number].set = on;
		}
	}
	kvfree(changes);
	return failed;
}

/* ---- entries ---- */

static void entries_free(struct entries *entries)
{
	ftrace_free_filter(&entries->ops);
	kvfree(entries->functions);
	kfree(entries);
}

static int entries_on(const uint32_t *functions, uint32_t count)
{
	struct entries *entries = kzalloc(sizeof *entries, GFP_KERNEL);
	unsigned long *sites = kvmalloc_array(count, sizeof *sites, GFP_KERNEL);
	int failed = -ENOMEM;
	if (!entries || !sites)
		goto end;
	entries->functions = kvmalloc_array(count, sizeof *functions, GFP_KERNEL);
	if (!entries->functions)
		goto end;
	memcpy(entries->functions, functions, count * sizeof *functions);
	entries->count = count;
	for (uint32_t i = 0; i < count; i++)
		sites[i] = nopal_functions[functions[i]].site;
	entries->ops.func = (ftrace_func_t)(with_arguments ? nopal_entry_of_ops_arguments : nopal_entry_of_ops);
	entries->ops.trampoline = (unsigned long)(with_arguments ? nopal_entry_arguments : nopal_entry);
	failed = ftrace_set_filter_ips(&entries->ops, sites, count, 0, 1);
	if (!failed)
		failed = register_ftrace_function(&entries->ops);
	if (!failed) {
		list_add(&entries->list, &all_entries);
		for (uint32_t i = 0; i < count; i++)
			nopal_functions[functions[i]].entered = true;
	}
end:
	kvfree(sites);
	if (failed && entries)
		entries_free(entries);
	return failed;
}

static bool should_record(const struct nopal_function *function)
{
	return !all_go && (function->wanted || uniform) && function->verdict == NOPAL_VERDICT_TRACED && !function->going;
}

static bool is_wanted(const struct entries *entries)
{
	for (uint32_t i = 0; i < entries->count; i++)
		if (should_record(&nopal_functions[entries->functions[i]]))
			return true;
	return false;
}

/* Removes the groups of entries of which no function is wanted any more. */
static int entries_off(void)
{
	struct entries *entries, *next;
	list_for_each_entry_safe(entries, next, &all_entries, list) {
		if (is_wanted(entries))
			continue;
		int failed = unregister_ftrace_function(&entries->ops);
		if (failed)
			return failed;
		for (uint32_t i = 0; i < entries->count; i++)
			nopal_functions[entries->functions[i]].entered = false;
		list_del(&entries->list);
		entries_free(entries);
	}
	return 0;
}

/* ---- reconciliation ---- */

void nopal_wait_for_tasks(void)
{
	synchronize_rcu_tasks();
	if (nopal_symbols.wait_for_tasks_rude)
		nopal_symbols.wait_for_tasks_rude();
}

static uint32_t exits_set(const struct nopal_function *function)
{
	uint32_t set = 0;
	for (uint32_t number = function->first_exit; number < function->first_exit + function->exits; number++)
		set += nopal_exits[number].set;
	return set;
}

/* A function whose exit another tool has changed, by a breakpoint say, is still present: that tool would put our jump
 * back. */
static int go(const uint32_t *functions, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		WRITE_ONCE(*word_at(&nopal_functions[functions[i]]), 0);
	int failed = entries_off();
	if (!failed)
		failed = change_exits(functions, count, false);
	for (uint32_t i = 0; !failed && i < count; i++) {
		struct nopal_function *function = &nopal_functions[functions[i]];
		function->present = exits_set(function);
	}
	/* Tasks may stand in a slot, or in the recorder, until they have next given up the processor. */
	nopal_wait_for_tasks();
	return failed;
}

static const struct module *module_of(uint32_t index)
{
	preempt_disable();
	const struct module *module = nopal_symbols.module_at(nopal_functions[index].address);
	preempt_enable();
	return module;
}

/* ftrace holds the processor until it has changed all sites of a request. */
#define ENTRIES_AT_ONCE 16384

/* Each module has its own groups, which come and go with it. */
static int enter(const uint32_t *functions, uint32_t count)
{
	int failed = 0;
	for (uint32_t first = 0, next; !failed && first < count; first = next) {
		next = first;
		while (next < count && next - first < ENTRIES_AT_ONCE && module_of(functions[next]) == module_of(functions[first]))
			next++;
		failed = entries_on(functions + first, next - first);
		cond_resched();
	}
	return failed;
}

static int come_on(const uint32_t *functions, uint32_t count)
{
	uint32_t *entries = kvmalloc_array(count, sizeof *entries, GFP_KERNEL);
	uint32_t entry_count = 0;
	if (!entries)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		nopal_functions[functions[i]].present = true;
	int failed = fill_slots(functions, count);
	if (!failed)
		failed = change_exits(functions, count, true);
	for (uint32_t i = 0; !failed && i < count; i++) {
		struct nopal_function *function = &nopal_functions[functions[i]];
		/* Foreign bytes were written since the plan was checked. */
		if (exits_set(function) < function->exits) {
			function->verdict = NOPAL_VERDICT_HELD;
			continue;
		}
		WRITE_ONCE(*word_at(function), word_of(functions[i], with_arguments ? NOPAL_KIND_ENTRY_ARGS : NOPAL_KIND_ENTRY));
		if (!function->entered)
			entries[entry_count++] = functions[i];
	}
	if (!failed)
		failed = enter(entries, entry_count);
	kvfree(entries);
	return failed;
}

bool nopal_function_records(const struct nopal_function *function)
{
	return function->verdict == NOPAL_VERDICT_TRACED && *word_at(function);
}

/* Selects the functions that must record and do not, or those that are present and must not be. */
static uint32_t select(bool wanted, uint32_t *found)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < nopal_function_count; i++) {
		const struct nopal_function *function = &nopal_functions[i];
		if (should_record(function) == wanted && (wanted ? !nopal_function_records(function) : function->present))
			found[count++] = i;
	}
	return count;
}

int nopal_functions_reconcile(void)
{
	uint32_t *found = kvmalloc_array(max(nopal_function_count, 1u), sizeof *found, GFP_KERNEL);
	if (!found)
		return -ENOMEM;
	uint32_t count = select(false, found);
	int failed = count ? go(found, count) : 0;
	count = select(true, found);
	if (!failed && count)
		failed = come_on(found, count);
	count = failed ? 0 : select(false, found);
	if (count)
		failed = go(found, count);
	kvfree(found);
	return failed;
}

/* The slots and the entries' calls hold whether arguments are recorded. They do not change while a site leads there. */
int nopal_functions_arguments(bool on)
{
	if (on == with_arguments)
		return 0;
	all_go = true;
	int failed = nopal_functions_reconcile();
	all_go = false;
	for (uint32_t i = 0; !failed && i < nopal_function_count; i++)
		if (nopal_functions[i].present)
			failed = -EBUSY;
	if (!failed)
		with_arguments = on;
	int again = nopal_functions_reconcile();
	return failed ? failed : again;
}

bool nopal_functions_have_arguments(void)
{
	return with_arguments;
}

int nopal_functions_uniform(bool on)
{
	bool before = uniform;
	uniform = on;
	int failed = nopal_functions_reconcile();
	if (!failed)
		return 0;
	uniform = before;
	nopal_functions_reconcile();
	return failed;
}

bool nopal_functions_are_uniform(void)
{
	return uniform;
}

/* Calls the recorder as ftrace calls the function of an ftrace_ops, with a slot on this stack, and arguments of 0. */
void nopal_function_simulate(const struct nopal_function *function)
{
	struct pt_regs registers = { .ip = function->site + NOPAL_SITE_BYTES, .sp = (unsigned long)&registers };
	(with_arguments ? nopal_entry_of_ops_arguments : nopal_entry_of_ops)(function->site, 0, 0, &registers);
}

/* ---- modules ---- */

/* Its text goes, also where it could not be restored. */
static void be_gone(uint32_t index)
{
	struct nopal_function *function = &nopal_functions[index];
	/* Another one may be known at the place of a function that was refused. */
	if (xa_load(&by_place, place_of(function->site)) == xa_mk_value(index)) {
		xa_erase(&by_place, place_of(function->site));
		WRITE_ONCE(*word_at(function), 0);
	}
	for (uint32_t number = function->first_exit; number < function->first_exit + function->exits; number++)
		nopal_exits[number].set = false;
	function->present = function->entered = function->going = false;
	function->verdict = NOPAL_VERDICT_GONE;
}

/* A module's text stays until the notifier has returned. */
static int at_module(struct notifier_block *block, unsigned long event, void *data)
{
	if (data == THIS_MODULE)
		return NOTIFY_DONE;
	mutex_lock(&nopal_lock);
	if (event != MODULE_STATE_GOING) {
		nopal_modules.come++;
		mutex_unlock(&nopal_lock);
		return NOTIFY_DONE;
	}
	for (uint32_t i = 0; i < nopal_function_count; i++) {
		struct nopal_function *function = &nopal_functions[i];
		function->going = within_module(function->address, data);
	}
	nopal_functions_reconcile();
	for (uint32_t i = 0; i < nopal_function_count; i++)
		if (nopal_functions[i].going)
			be_gone(i);
	mutex_unlock(&nopal_lock);
	return NOTIFY_DONE;
}

static struct notifier_block modules = { .notifier_call = at_module };

int nopal_functions_begin(void)
{
	for (uint32_t i = 0; i < LEAVES; i++)
		nopal_leaves[i] = nothing;
	return register_module_notifier(&modules);
}

static bool all_gone(void)
{
	mutex_lock(&nopal_lock);
	uniform = false;
	for (uint32_t i = 0; i < nopal_function_count; i++)
		nopal_functions[i].wanted = 0;
	bool gone = !nopal_functions_reconcile();
	for (uint32_t i = 0; i < nopal_function_count; i++)
		gone &= !nopal_functions[i].present;
	mutex_unlock(&nopal_lock);
	return gone;
}

void nopal_functions_end(void)
{
	/* Memory may be short, or a foreign breakpoint in the way, but nothing may lead here when the module has
	 * gone. */
	while (!all_gone())
		msleep(10);
	/* The notifier is the last to go: until all text is restored, it must learn of modules whose text is
	 * unloaded. */
	unregister_module_notifier(&modules);
	nopal_wait_for_tasks();
	xa_destroy(&by_place);
	for (uint32_t i = 0; i < LEAVES; i++)
		if (nopal_leaves[i] != nothing)
			vfree(nopal_leaves[i]);
	vfree(nopal_functions);
	vfree(nopal_exits);
}
