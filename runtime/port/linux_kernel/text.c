// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Changes of the kernel's text, through a second mapping of its pages that may be written.
 *
 * Each site goes through the steps of a breakpoint:
 *
 *   1. the first byte becomes a breakpoint                   every processor synchronises
 *   2. the other bytes become those of the new instruction   every processor synchronises
 *   3. the first byte does                                   every processor synchronises
 *
 * A processor that meets the breakpoint emulates the instruction, with interrupts off. One that has answered a step is
 * neither in an NMI nor there, so it runs nothing that it fetched before.
 *
 * The processors go on meanwhile if a few jumps and returns are changed, which a processor may meet at any moment. For
 * other batches, stop_machine holds them with their interrupts off, and only an NMI can meet a breakpoint.
 */
#include <linux/cpu.h>
#include <linux/kdebug.h>
#include <linux/mm.h>
#include <linux/stop_machine.h>
#include <linux/vmalloc.h>
#include <asm/sync_core.h>
#include <asm/text-patching.h>
#include "module.h"

/* A stop should last 4 ms; a batch never has more sites than this. */
#define STOP_NANOSECONDS (4 * NSEC_PER_MSEC)
#define BATCH_AT_LEAST 32
#define BATCH_AT_FIRST 256
#define BATCH_AT_MOST 16384
#define FEW 16

uint64_t nopal_text_longest_stop;

/* ---- the second mapping ---- */

struct alias {
	unsigned long *pages;   /* addresses of the pages, in order */
	struct page **page;
	uint32_t count;
	uint8_t *base;
};

static struct page *page_at(unsigned long address)
{
	bool is_module = address >= MODULES_VADDR && address < MODULES_END;
	return is_module || is_vmalloc_addr((void *)address) ? vmalloc_to_page((void *)address) :
							      virt_to_page(lm_alias((void *)address));
}

static void alias_page(struct alias *alias, unsigned long address)
{
	address &= PAGE_MASK;
	if (alias->count && alias->pages[alias->count - 1] == address)
		return;
	alias->pages[alias->count] = address;
	alias->page[alias->count++] = page_at(address);
}

static int alias_begin(struct alias *alias, uint32_t at_most)
{
	*alias = (struct alias){ 0 };
	alias->pages = kvmalloc_array(at_most, sizeof *alias->pages, GFP_KERNEL);
	alias->page = kvmalloc_array(at_most, sizeof *alias->page, GFP_KERNEL);
	return alias->pages && alias->page ? 0 : -ENOMEM;
}

static int alias_map(struct alias *alias)
{
	alias->base = vmap(alias->page, alias->count, VM_MAP, PAGE_KERNEL);
	return alias->base ? 0 : -ENOMEM;
}

static void alias_end(struct alias *alias)
{
	vunmap(alias->base);
	kvfree(alias->pages);
	kvfree(alias->page);
}

/* ---- a batch ---- */

enum step { STEP_BREAKPOINT, STEP_TAIL, STEP_HEAD, STEPS };

static struct batch {
	struct nopal_change *changes;
	uint8_t **writable;             /* where the second mapping has each; 0: left alone */
	uint32_t count;
	atomic_t master;
	atomic_t answered;
	int step;
	uint64_t nanoseconds;
} batch;
/* While a batch is under way; for the breakpoint's handler. */
static bool under_way;

/* Calls nothing: a function that it called could be the one that is changed. */
static bool is_before(const uint8_t *at, const struct nopal_change *change)
{
	bool same = true;
	for (int i = 0; i < change->length; i++)
		same &= READ_ONCE(at[i]) == change->before[i];
	return same;
}

static void step(enum step step)
{
	for (uint32_t i = 0; i < batch.count; i++) {
		struct nopal_change *change = &batch.changes[i];
		uint8_t *to = batch.writable[i];
		if (step == STEP_BREAKPOINT) {
			change->done = is_before(to, change);
			if (change->done)
				WRITE_ONCE(*to, 0xcc);
		} else if (!change->done) {
			continue;
		} else if (step == STEP_TAIL) {
			for (int i = 1; i < change->length; i++)
				WRITE_ONCE(to[i], change->after[i]);
		} else {
			WRITE_ONCE(*to, change->after[0]);
		}
	}
}

static void synchronise(void *unused)
{
	sync_core();
}

static void change_few(void)
{
	WRITE_ONCE(under_way, true);
	for (int done = 0; done < STEPS; done++) {
		step(done);
		on_each_cpu(synchronise, 0, 1);
	}
	WRITE_ONCE(under_way, false);
}

/* What adds to the count of preemption tells by its flags whether to switch tasks, which the count of a breakpoint's
 * handler hides. */
static bool are_few(const struct nopal_change *changes, uint32_t count)
{
	for (uint32_t i = 0; i < count && count <= FEW; i++)
		if (changes[i].length != NOPAL_SITE_BYTES)
			return false;
	return count <= FEW;
}

/* Runs on every processor with interrupts off. The first one writes, the others answer each step. */
static int hold(void *unused)
{
	int others = num_online_cpus() - 1;
	if (atomic_cmpxchg(&batch.master, 0, 1)) {
		for (int done = 0; done < STEPS; done++) {
			while (smp_load_acquire(&batch.step) <= done)
				cpu_relax();
			sync_core();
			atomic_inc(&batch.answered);
		}
		return 0;
	}
	uint64_t begin = ktime_get_mono_fast_ns();
	WRITE_ONCE(under_way, true);
	for (int done = 0; done < STEPS; done++) {
		step(done);
		sync_core();
		smp_store_release(&batch.step, done + 1);
		while (atomic_read_acquire(&batch.answered) < others * (done + 1))
			cpu_relax();
	}
	WRITE_ONCE(under_way, false);
	batch.nanoseconds = ktime_get_mono_fast_ns() - begin;
	return 0;
}

/* Adds to a word of this processor, and sets the flags as the instruction does. */
static void emulate_add(struct pt_regs *registers, uint32_t offset, int32_t amount)
{
	unsigned long flags;
	asm volatile("addl %2, %%gs:(%1)\n\tpushf\n\tpop %0"
		     : "=&r"(flags)
		     : "r"((unsigned long)(int32_t)offset), "r"(amount)
		     : "memory", "cc");
	unsigned long status = X86_EFLAGS_ZF | X86_EFLAGS_SF | X86_EFLAGS_OF | X86_EFLAGS_CF | X86_EFLAGS_PF | X86_EFLAGS_AF;
	registers->flags = (registers->flags & ~status) | (flags & status);
}

/* Emulates the instruction; if a change inserts or removes a call, the one in whose place the call stands. */
static void emulate(struct pt_regs *registers, const struct nopal_change *change)
{
	const uint8_t *bytes = change->before[0] == NOPAL_CALL_PREFIX ? change->after : change->before;
	unsigned long end = change->address + change->length;
	uint32_t word;
	memcpy(&word, bytes + 3, sizeof word);
	switch (bytes[0]) {
	case 0xc3:
		registers->ip = *(unsigned long *)registers->sp;
		registers->sp += sizeof(unsigned long);
		return;
	case 0xe9:
		registers->ip = end + *(int32_t *)(bytes + 1);
		return;
	case 0xeb:
		registers->ip = change->address + 2 + (int8_t)bytes[1];
		return;
	case 0xfa:
		registers->flags &= ~X86_EFLAGS_IF;
		break;
	case 0xfb:
		registers->flags |= X86_EFLAGS_IF;
		break;
	case 0x65:      /* of %gs:disp32(%rip): incl, decl, addl of a byte, addl of a word */
		if (bytes[1] == 0xff)
			emulate_add(registers, end + word, bytes[2] == 0x05 ? 1 : -1);
		else
			emulate_add(registers, end + word, bytes[1] == 0x83 ? (int8_t)bytes[7] : *(int32_t *)(bytes + 7));
		break;
	}
	registers->ip = end;
}

static int breakpoint(struct notifier_block *block, unsigned long event, void *data)
{
	struct die_args *trap = data;
	if (event != DIE_INT3 || !READ_ONCE(under_way) || user_mode(trap->regs))
		return NOTIFY_DONE;
	unsigned long address = trap->regs->ip - 1;
	uint32_t low = 0, high = batch.count;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (batch.changes[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == batch.count || batch.changes[low].address != address)
		return NOTIFY_DONE;
	emulate(trap->regs, &batch.changes[low]);
	return NOTIFY_STOP;
}

static struct notifier_block notifier = { .notifier_call = breakpoint, .priority = INT_MAX };

static int change_batch(struct nopal_change *changes, uint32_t count)
{
	struct alias alias;
	uint8_t **writable = kvmalloc_array(count, sizeof *writable, GFP_KERNEL);
	int failed = alias_begin(&alias, 2 * count);
	if (failed || !writable) {
		failed = -ENOMEM;
		goto end;
	}
	for (uint32_t i = 0; i < count; i++) {
		alias_page(&alias, changes[i].address);
		alias_page(&alias, changes[i].address + changes[i].length - 1);
	}
	failed = alias_map(&alias);
	if (failed)
		goto end;
	/* A page is listed once, so the next page follows it where a site lies in both. */
	for (uint32_t i = 0, page = 0; i < count; i++) {
		while (alias.pages[page] != (changes[i].address & PAGE_MASK))
			page++;
		writable[i] = alias.base + (size_t)page * PAGE_SIZE + offset_in_page(changes[i].address);
	}
	batch = (struct batch){ .changes = changes, .writable = writable, .count = count };
	cpus_read_lock();
	mutex_lock(nopal_symbols.text_mutex);
	if (are_few(changes, count))
		change_few();
	else
		failed = nopal_symbols.stop_machine(hold, 0, cpu_online_mask);
	mutex_unlock(nopal_symbols.text_mutex);
	cpus_read_unlock();
	nopal_text_longest_stop = max(nopal_text_longest_stop, batch.nanoseconds);
end:
	alias_end(&alias);
	kvfree(writable);
	return failed;
}

int nopal_text_change(struct nopal_change *changes, uint32_t count)
{
	uint32_t size = BATCH_AT_FIRST;
	for (uint32_t at = 0; at < count;) {
		uint32_t now = min(size, count - at);
		int failed = change_batch(changes + at, now);
		if (failed)
			return failed;
		at += now;
		uint64_t fitting = div64_u64(now * STOP_NANOSECONDS, batch.nanoseconds | 1);
		size = clamp_t(uint64_t, fitting, BATCH_AT_LEAST, min(size * 2, (uint32_t)BATCH_AT_MOST));
		cond_resched();
	}
	return 0;
}

int nopal_text_fill(void *slots, const void *bytes, uint32_t count)
{
	struct alias alias;
	unsigned long first = (unsigned long)slots;
	int failed = alias_begin(&alias, count / PAGE_SIZE + 2);
	if (!failed) {
		for (unsigned long at = first & PAGE_MASK; at < first + count; at += PAGE_SIZE)
			alias_page(&alias, at);
		failed = alias_map(&alias);
	}
	if (!failed)
		memcpy(alias.base + offset_in_page(first), bytes, count);
	alias_end(&alias);
	return failed;
}

int nopal_text_begin(void)
{
	return register_die_notifier(&notifier);
}

void nopal_text_end(void)
{
	unregister_die_notifier(&notifier);
}
