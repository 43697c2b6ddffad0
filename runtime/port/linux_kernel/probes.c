// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Probes at instructions: the kernel's own kprobes, which know where a breakpoint or a jump may stand and whether
 * others have one there, with core's values and records. The tool works out what is fetched; memory is read safely in
 * any case.
 */
#include <linux/kprobes.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "command_parser.h"
#include "device.h"
#include "mark.h"
#include "module.h"

#define TEXT_AT_MOST 2048
#define PROBES_AT_MOST 256

struct probe {
	struct list_head list;
	struct kprobe kprobe;
	unsigned long address;
	char *text;                     /* the command that makes it */
	char *name;
	bool on;
	struct nopal_mark mark;
	struct nopal_fetch fetches[NOPAL_FETCHES];      /* right behind it, where core finds them */
};
_Static_assert(offsetof(struct probe, fetches) == offsetof(struct probe, mark) + sizeof(struct nopal_mark), "fetches");

/* Under nopal_lock. The state's commands can make those again that were removed, the last ones first in their list. */
static LIST_HEAD(probes);
static LIST_HEAD(removed);
static uint32_t probe_count, removed_count;

/* With preemption off. */
static int at_probe(struct kprobe *kprobe, struct pt_regs *at)
{
	struct probe *probe = container_of(kprobe, struct probe, kprobe);
	/* In the processor's numbering. */
	const uint64_t registers[] = { at->ax, at->cx, at->dx,	at->bx,	 at->sp,  at->bp,  at->si,  at->di,
				       at->r8, at->r9, at->r10, at->r11, at->r12, at->r13, at->r14, at->r15 };
	unsigned long flags;
	if (!nopal_context_wants())
		return 0;
	/* As what a fentry site's slow path does, this belongs to one processor. */
	raw_local_irq_save(flags);
	nopal_fetch(&probe->mark, registers);
	raw_local_irq_restore(flags);
	return 0;
}

static struct probe *find(const char *name, uint32_t length)
{
	struct probe *probe;
	list_for_each_entry(probe, &probes, list)
		if (strlen(probe->name) == length && !memcmp(probe->name, name, length))
			return probe;
	return 0;
}

static void drop(struct probe *probe)
{
	list_del(&probe->list);
	kfree(probe->text);
	kfree(probe->name);
	kfree(probe);
}

/* A probe is not recorded if another probe, or a read of its values, runs into it: the kernel counts it. */
static void take_away(struct probe *probe)
{
	unregister_kprobe(&probe->kprobe);
	nopal_region_lose(nopal_kernel.region, 0, NOPAL_LOST_INTERRUPTED, probe->kprobe.nmissed);
	probe_count--;
	probe->on = false;
	list_move(&probe->list, &removed);
	/* Another module may stand there next time. */
	bool is_of_module = probe->address >= MODULES_VADDR;
	if (is_of_module || removed_count == PROBES_AT_MOST)
		drop(is_of_module ? probe : list_last_entry(&removed, struct probe, list));
	else
		removed_count++;
}

/* ---- making a probe ---- */

/* Whether core can fetch the value. */
static bool is_sound(const struct nopal_fetch *fetch)
{
	bool is_size = fetch->bytes == 1 || fetch->bytes == 2 || fetch->bytes == 4 || fetch->bytes == 8;
	return fetch->source <= NOPAL_FETCH_CONSTANT && fetch->loads <= NOPAL_FETCH_LOADS && is_size && fetch->shift < 64;
}

/* Sets the shape of the values. If any can be missing, one more says which are. */
static void shape(struct probe *probe, uint32_t count)
{
	bool has_text = false, may_miss = false;
	for (uint32_t i = 0; i < count; i++) {
		const struct nopal_fetch *fetch = &probe->fetches[i];
		if (fetch->text)
			probe->mark.shape |= (uint64_t)NOPAL_VALUE_FETCHED << (NOPAL_SHAPE_VALUES + 2 * i);
		has_text |= fetch->text;
		may_miss |= fetch->text || fetch->loads;
	}
	probe->mark.probes = count;
	probe->mark.shape |= count + may_miss;
	probe->mark.event = nopal_event_next(count + may_miss, has_text);
}

/* The name stands in the text. */
static int name_of(struct probe *probe, struct nopal_control *command)
{
	uint32_t length = strlen(probe->text);
	if (strchr(probe->text, '\n') || !nopal_control_parse(probe->text, length, command) ||
	    command->command != NOPAL_COMMAND_PROBE ||
	    (command->present & ~NOPAL_PROBE_FETCHES) != NOPAL_PROBE_NAMED)
		return -EINVAL;
	struct nopal_span name = command->arguments[1];
	if (find(probe->text + name.begin, name.end - name.begin))
		return -EEXIST;
	probe->name = kmemdup_nul(probe->text + name.begin, name.end - name.begin, GFP_KERNEL);
	return probe->name ? 0 : -ENOMEM;
}

/* Off. */
static int insert(struct probe *probe)
{
	probe->kprobe = (struct kprobe){
		.addr = (void *)probe->address,
		.pre_handler = at_probe,
		.flags = KPROBE_FLAG_DISABLED,
	};
	return register_kprobe(&probe->kprobe);
}

static int fill(struct probe *probe, const struct nopal_device_probe *wanted, struct nopal_control *command)
{
	if (wanted->count > NOPAL_FETCHES)
		return -E2BIG;
	if (copy_from_user(probe->fetches, (void __user *)wanted->fetches, wanted->count * sizeof *probe->fetches))
		return -EFAULT;
	for (uint32_t i = 0; i < wanted->count; i++)
		if (!is_sound(&probe->fetches[i]))
			return -EINVAL;
	probe->text = strndup_user((void __user *)wanted->text, TEXT_AT_MOST);
	if (IS_ERR(probe->text)) {
		int failed = PTR_ERR(probe->text);
		probe->text = 0;
		return failed;
	}
	int failed = name_of(probe, command);
	if (failed)
		return failed;
	shape(probe, wanted->count);
	if (!probe->mark.event)
		return -ENOSPC;
	probe->address = wanted->address;
	/* Of all refusals, only this one has an error of its own. */
	return within_module(wanted->address, THIS_MODULE) ? -EPERM : insert(probe);
}

int nopal_probe_make(struct nopal_device_probe *wanted)
{
	if (wanted->version != NOPAL_DEVICE_VERSION)
		return -EPROTO;
	if (probe_count == PROBES_AT_MOST)
		return -ENOSPC;
	struct probe *probe = kzalloc(sizeof *probe, GFP_KERNEL);
	struct nopal_control *command = kmalloc(sizeof *command, GFP_KERNEL);
	if (probe)
		INIT_LIST_HEAD(&probe->list);
	int failed = probe && command ? fill(probe, wanted, command) : -ENOMEM;
	kfree(command);
	if (failed) {
		if (probe)
			drop(probe);
		return failed;
	}
	wanted->event = probe->mark.event;
	list_add_tail(&probe->list, &probes);
	probe_count++;
	return 0;
}

int nopal_probe_again(const char *command, uint32_t length)
{
	struct probe *probe;
	list_for_each_entry(probe, &removed, list) {
		if (strlen(probe->text) != length || memcmp(probe->text, command, length))
			continue;
		if (find(probe->name, strlen(probe->name)))
			return -EEXIST;
		int failed = probe_count == PROBES_AT_MOST ? -ENOSPC : insert(probe);
		if (failed)
			return failed;
		list_move_tail(&probe->list, &probes);
		removed_count--;
		probe_count++;
		return 0;
	}
	return -ENOENT;
}

/* ---- switching and removing a probe ---- */

int nopal_probe_switch(const char *name, uint32_t length, bool on)
{
	struct probe *probe = find(name, length);
	if (!probe)
		return -ENOENT;
	if (probe->on == on)
		return 0;
	int failed = on ? enable_kprobe(&probe->kprobe) : disable_kprobe(&probe->kprobe);
	if (!failed)
		probe->on = on;
	return failed;
}

int nopal_probe_remove(const char *name, uint32_t length)
{
	struct probe *probe = find(name, length);
	if (!probe)
		return -ENOENT;
	take_away(probe);
	return 0;
}

void nopal_probes_reset(void)
{
	struct probe *probe, *next;
	list_for_each_entry_safe(probe, next, &probes, list)
		take_away(probe);
}

void nopal_probes_end(void)
{
	struct probe *probe, *next;
	nopal_probes_reset();
	list_for_each_entry_safe(probe, next, &removed, list)
		drop(probe);
}

void nopal_probes_show(struct seq_file *file)
{
	const struct probe *probe;
	list_for_each_entry(probe, &probes, list) {
		seq_printf(file, "%s\n", probe->text);
		if (probe->on)
			seq_printf(file, "probe %s on\n", probe->name);
		seq_printf(file, "#probe %s, missed %lu\n",
			   probe->kprobe.flags & KPROBE_FLAG_GONE	? "has gone with its module" :
			   probe->kprobe.flags & KPROBE_FLAG_FTRACE	? "by ftrace" :
								  "by a breakpoint or a jump",
			   probe->kprobe.nmissed);
	}
}
