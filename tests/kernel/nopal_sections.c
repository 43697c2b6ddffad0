// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Sections of known length with interrupts or preemption off, made by a write of KIND MICROSECONDS to
 * /proc/nopal_sections. It then returns the microseconds that the last one took: an emulated machine may stand still
 * for long.
 */
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/proc_fs.h>
#include <linux/spinlock.h>
#include <linux/bottom_half.h>
#include <linux/uaccess.h>
#include <asm/tsc.h>
#include <asm/msr.h>

static DEFINE_SPINLOCK(lock);

static noinline void wait_for(unsigned int microseconds)
{
	u64 begin = rdtsc();
	while (rdtsc() - begin < (u64)microseconds * tsc_khz / 1000)
		cpu_relax();
}

static noinline void lock_with_irqs_off(unsigned int microseconds)
{
	unsigned long flags;
	spin_lock_irqsave(&lock, flags);
	wait_for(microseconds);
	spin_unlock_irqrestore(&lock, flags);
}

static noinline void switch_irqs_off(unsigned int microseconds)
{
	local_irq_disable();
	wait_for(microseconds);
	local_irq_enable();
}

static noinline void nest_irqs_off(unsigned int microseconds)
{
	unsigned long flags;
	local_irq_disable();
	wait_for(microseconds / 2);
	spin_lock_irqsave(&lock, flags);
	wait_for(microseconds / 4);
	spin_unlock_irqrestore(&lock, flags);
	wait_for(microseconds / 4);
	local_irq_enable();
}

static noinline void lock_with_preemption_off(unsigned int microseconds)
{
	spin_lock(&lock);
	wait_for(microseconds);
	spin_unlock(&lock);
}

static noinline void switch_preemption_off(unsigned int microseconds)
{
	preempt_disable();
	wait_for(microseconds);
	preempt_enable();
}

static noinline void nest_preemption_off(unsigned int microseconds)
{
	preempt_disable();
	wait_for(microseconds / 2);
	spin_lock(&lock);
	wait_for(microseconds / 4);
	spin_unlock(&lock);
	wait_for(microseconds / 4);
	preempt_enable();
}

static noinline void lock_with_softirqs_off(unsigned int microseconds)
{
	spin_lock_bh(&lock);
	wait_for(microseconds);
	spin_unlock_bh(&lock);
}

/* Turns interrupts off first, preemption off in the middle of that, and both on at the end. */
static noinline void overlap(unsigned int microseconds)
{
	local_irq_disable();
	wait_for(microseconds / 4);
	preempt_disable();
	wait_for(microseconds / 4);
	local_irq_enable();
	wait_for(microseconds / 2);
	preempt_enable();
}

static unsigned int of_softirq;

static void on_softirq(struct tasklet_struct *tasklet)
{
	wait_for(of_softirq);
}

static DECLARE_TASKLET(tasklet, on_softirq);

static noinline void within_softirq(unsigned int microseconds)
{
	of_softirq = microseconds;
	tasklet_schedule(&tasklet);
	tasklet_kill(&tasklet);
}

static unsigned int of_interrupt;

/* The section that the interrupt itself began ends before this one. */
static void on_interrupt(struct irq_work *work)
{
	local_irq_enable();
	switch_irqs_off(of_interrupt);
	local_irq_disable();
}

static DEFINE_IRQ_WORK(interrupt, on_interrupt);

static void interrupt_here(unsigned int microseconds)
{
	of_interrupt = microseconds;
	irq_work_queue(&interrupt);
	while (irq_work_is_busy(&interrupt))
		cpu_relax();
}

static noinline void within_interrupt(unsigned int microseconds)
{
	interrupt_here(microseconds);
}

static void on_softirq_interrupted(struct tasklet_struct *tasklet)
{
	interrupt_here(of_softirq);
}

static DECLARE_TASKLET(interrupted_tasklet, on_softirq_interrupted);

static noinline void within_interrupt_of_softirq(unsigned int microseconds)
{
	of_softirq = microseconds;
	tasklet_schedule(&interrupted_tasklet);
	tasklet_kill(&interrupted_tasklet);
}

/* Ticks of a pair of cli and sti, the least of several runs: instructions, if the emulator counts these. */
static noinline void measure(unsigned int pairs)
{
	u64 least = U64_MAX;
	for (int run = 0; run < 5; run++) {
		u64 begin = rdtsc();
		for (unsigned int i = 0; i < pairs; i++) {
			local_irq_disable();
			barrier();
			local_irq_enable();
		}
		least = min(least, rdtsc() - begin);
	}
	pr_info("nopal_sections: %llu ticks for %u pairs\n", least, pairs);
}

static const struct {
	const char *name;
	void (*make)(unsigned int microseconds);
} kinds[] = {
	{ "lock_with_irqs_off", lock_with_irqs_off },
	{ "switch_irqs_off", switch_irqs_off },
	{ "nest_irqs_off", nest_irqs_off },
	{ "lock_with_preemption_off", lock_with_preemption_off },
	{ "switch_preemption_off", switch_preemption_off },
	{ "nest_preemption_off", nest_preemption_off },
	{ "lock_with_softirqs_off", lock_with_softirqs_off },
	{ "overlap", overlap },
	{ "within_softirq", within_softirq },
	{ "within_interrupt", within_interrupt },
	{ "within_interrupt_of_softirq", within_interrupt_of_softirq },
	{ "measure", measure },
};

static u64 last;

static ssize_t tell(struct file *file, char __user *to, size_t length, loff_t *position)
{
	char text[32];
	int bytes = scnprintf(text, sizeof text, "%llu\n", last);
	return simple_read_from_buffer(to, length, position, text, bytes);
}

static ssize_t make(struct file *file, const char __user *from, size_t length, loff_t *position)
{
	char text[64], name[32];
	unsigned int microseconds;
	if (length >= sizeof text || copy_from_user(text, from, length))
		return -EINVAL;
	text[length] = 0;
	if (sscanf(text, "%31s %u", name, &microseconds) != 2)
		return -EINVAL;
	for (int i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].name, name)) {
			u64 begin = rdtsc();
			kinds[i].make(microseconds);
			last = (rdtsc() - begin) * 1000 / tsc_khz;
			return length;
		}
	return -EINVAL;
}

static const struct proc_ops operations = { .proc_read = tell, .proc_write = make };

static int __init begin(void)
{
	return proc_create("nopal_sections", 0600, 0, &operations) ? 0 : -ENOMEM;
}

static void __exit end(void)
{
	remove_proc_entry("nopal_sections", 0);
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("sections with interrupts or preemption off, for tests");
