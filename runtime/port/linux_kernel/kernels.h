/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * Differences between kernels.
 */
#ifndef NOPAL_KERNELS_H
#define NOPAL_KERNELS_H

#include <linux/version.h>

/* The preemption count, a word of each processor. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0) && LINUX_VERSION_CODE < KERNEL_VERSION(6, 15, 0)
#define NOPAL_PREEMPT_COUNT pcpu_hot + NOPAL_PREEMPT_COUNT_OFFSET
#define NOPAL_PREEMPT_COUNT_OFFSET 8
#else
#define NOPAL_PREEMPT_COUNT __preempt_count
#endif

/* How instructions that change it are written and begin, and what an interrupt adds to it. */
#ifdef CONFIG_HAS_SEPARATE_PREEMPT_RESCHED_BITS
#define NOPAL_PREEMPT_COUNT_ADD addq
#define NOPAL_PREEMPT_COUNT_SUBTRACT_ONE decq
#define NOPAL_PREEMPT_COUNT_PREFIXES 0x65, 0x48
#define NOPAL_PREEMPT_COUNT_INTERRUPT 0x1000000
#else
#define NOPAL_PREEMPT_COUNT_ADD addl
#define NOPAL_PREEMPT_COUNT_SUBTRACT_ONE decl
#define NOPAL_PREEMPT_COUNT_PREFIXES 0x65
#define NOPAL_PREEMPT_COUNT_INTERRUPT 0x10000
#endif

#ifndef __ASSEMBLER__
#include <linux/ftrace.h>
#include <linux/preempt.h>

_Static_assert(NOPAL_PREEMPT_COUNT_INTERRUPT == HARDIRQ_OFFSET, "amount");

static inline unsigned long nopal_preempt_count(void)
{
#ifdef NOPAL_PREEMPT_COUNT_OFFSET
	_Static_assert(offsetof(struct pcpu_hot, preempt_count) == NOPAL_PREEMPT_COUNT_OFFSET, "offset");
	return (unsigned long)&pcpu_hot + NOPAL_PREEMPT_COUNT_OFFSET;
#else
	return (unsigned long)&__preempt_count;
#endif
}

/* What a tracepoint adds to the count while its probes run. Since 7.0, SRCU protects them in place of preemption. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define NOPAL_PREEMPTION_OF_TRACEPOINTS 0
#else
#define NOPAL_PREEMPTION_OF_TRACEPOINTS IS_ENABLED(CONFIG_PREEMPT_COUNT)
#endif

/* The parameters of a probe of sched_switch, and what the previous task waits for. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 18, 0)
#define NOPAL_SWITCH_PARAMETERS \
	void *unused, bool preempt, struct task_struct *previous, struct task_struct *next, unsigned int state
#define NOPAL_SWITCH_STATE state
#else
#define NOPAL_SWITCH_PARAMETERS void *unused, bool preempt, struct task_struct *previous, struct task_struct *next
#define NOPAL_SWITCH_STATE READ_ONCE(previous->__state)
#endif

/* The text of a module that is no part of its beginning. */
static inline unsigned long nopal_module_text(const struct module *module, unsigned long *bytes)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	*bytes = module->mem[MOD_TEXT].size;
	return (unsigned long)module->mem[MOD_TEXT].base;
#else
	*bytes = module->core_layout.text_size;
	return (unsigned long)module->core_layout.base;
#endif
}

/* kallsyms_on_each_symbol tells of the kernel's own symbols, module_kallsyms_on_each_symbol of those of modules. Without
 * the first (0), only of those. */
struct nopal_each {
	void (*run)(void *data, const char *name, unsigned long address);
	void *data;
};

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
static inline int nopal_run(void *each, const char *name, unsigned long address)
#else
static inline int nopal_run(void *each, const char *name, struct module *module, unsigned long address)
#endif
{
	((struct nopal_each *)each)->run(((struct nopal_each *)each)->data, name, address);
	return 0;
}

static inline void nopal_each_symbol(void *of_kernel, void *of_modules, struct nopal_each *each)
{
	if (of_kernel)
		((int (*)(typeof(nopal_run) *, void *))of_kernel)(nopal_run, each);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	((int (*)(const char *, typeof(nopal_run) *, void *))of_modules)(0, nopal_run, each);
#else
	((int (*)(typeof(nopal_run) *, void *))of_modules)(nopal_run, each);
#endif
}

#endif

#endif
