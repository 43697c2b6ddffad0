// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Markers, passed after a write of WHAT NUMBER to /proc/nopal_markers: `met` so often in this task, `interrupted` once
 * in an interrupt of each processor, `typed` with values of all types, `measure` so often, which returns the ticks of
 * loops with markers and without.
 */
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/smp.h>
#include <linux/timex.h>
#include <linux/uaccess.h>
#include "nopal.h"

enum state { IDLE, BUSY, DONE };

static noinline void meet(unsigned int times)
{
	unsigned int i;

	for (i = 0; i < times; i++)
		NOPAL_MARK(test_met, "number=%u device=%s", i, "eth0");
}

static void interrupted(void *unused)
{
	NOPAL_MARK(test_interrupted, "processor=%d", smp_processor_id());
}

static noinline void be_typed(void)
{
	static const char data[] = { 1, 2, 3 };
	const char *const unmapped = (const char *)0xffff800000001000ul, *const null = NULL;
	signed char byte = -1;
	u64 wide = ~0ull;

	NOPAL_MARK(test_typed, "byte=%hhd wide=%llu state=%d{idle,busy,done} bytes=%p null=%s unmapped=%s", byte, wide, BUSY,
		   NOPAL_BYTES(data, sizeof(data)), null, unmapped);
	NOPAL_MARK(test_lone, "");
}

/* The ticks of so many turns of a loop; its operands are loaded before the first turn, and each turn ends with a jump. */
#define TICKS(times, ...)                                       \
	({                                                      \
		unsigned int i = 0;                             \
		cycles_t begin;                                 \
		asm volatile("" : "+r"(i), "+r"(times));        \
		begin = get_cycles();                           \
		_Pragma("GCC unroll 1")                         \
		do {                                            \
			barrier();                              \
			__VA_ARGS__;                            \
		} while (++i < (times));                        \
		get_cycles() - begin;                           \
	})

static noinline void copy(void)
{
	static char from[4096], to[4096];

	memcpy(to, from, sizeof(to));
	asm volatile("" : : "r"(from), "r"(to) : "memory");
}

/* The loops of the micro-benchmark of Linux Kernel Markers 0.19, with interrupts off as there. */
static noinline void measure(unsigned int times)
{
	cycles_t empty, marked, copied, copied_marked;
	unsigned long flags;

	local_irq_save(flags);
	empty = TICKS(times, );
	marked = TICKS(times, NOPAL_MARK(test_measured, "number=%u pointer=%p", i, NULL));
	copied = TICKS(times, copy());
	copied_marked = TICKS(times, copy(); NOPAL_MARK(test_copied, "number=%u pointer=%p", i, NULL));
	local_irq_restore(flags);
	pr_info("nopal_markers: empty %llu, marked %llu, copied %llu, copied and marked %llu ticks\n", empty, marked, copied,
		copied_marked);
}

static ssize_t order(struct file *file, const char __user *from, size_t length, loff_t *position)
{
	char line[64] = "", what[32];
	unsigned int number;

	if (length >= sizeof(line) || copy_from_user(line, from, length))
		return -EFAULT;
	if (sscanf(line, "%31s %u", what, &number) != 2)
		return -EINVAL;
	if (!strcmp(what, "met"))
		meet(number);
	else if (!strcmp(what, "interrupted"))
		on_each_cpu(interrupted, NULL, 1);
	else if (!strcmp(what, "typed"))
		be_typed();
	else if (!strcmp(what, "measure"))
		measure(number);
	else
		return -EINVAL;
	return length;
}

static const struct proc_ops operations = { .proc_write = order };

static int __init begin(void)
{
	NOPAL_MARK(test_begun, "module=%s", THIS_MODULE->name);
	return proc_create("nopal_markers", 0200, NULL, &operations) ? 0 : -ENOMEM;
}

static void __exit end(void)
{
	remove_proc_entry("nopal_markers", NULL);
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("markers, for tests");
