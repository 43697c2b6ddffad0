// SPDX-License-Identifier: MIT OR GPL-2.0
/* Replaces what /proc/cmdline shows by "livepatched", until 0 is written to /sys/kernel/livepatch/nopal_livepatch/enabled. */
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/seq_file.h>

static int shown(struct seq_file *file, void *unused)
{
	seq_puts(file, "livepatched\n");
	return 0;
}

static struct klp_func functions[] = { { .old_name = "cmdline_proc_show", .new_func = shown }, {} };
static struct klp_object objects[] = { { .funcs = functions }, {} };
static struct klp_patch patch = { .mod = THIS_MODULE, .objs = objects };

static int __init begin(void)
{
	return klp_enable_patch(&patch);
}

static void __exit end(void)
{
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
MODULE_DESCRIPTION("a livepatch, for tests");
