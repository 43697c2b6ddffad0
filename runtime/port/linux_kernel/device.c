// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * /dev/nopal: commands in, the state out, the tool's plan, and the region.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include "module.h"

#define WRITTEN_AT_MOST 65536
#define ERROR_BYTES 512

/* Why the last command failed, for whoever reads; by whoever holds nopal_lock. */
static char last_error[ERROR_BYTES];

static int show(struct seq_file *file, void *unused)
{
	mutex_lock(&nopal_lock);
	nopal_traces_show(file);
	uint32_t traced = 0;
	for (uint32_t i = 0; i < nopal_function_count; i++)
		traced += nopal_functions[i].verdict == NOPAL_VERDICT_TRACED;
	seq_printf(file, "# %u functions can be traced\n", traced);
	seq_printf(file, "# lost %llu\n", nopal_context_lost());
	seq_printf(file, "# longest stop of all processors: %llu ns\n", nopal_text_longest_stop);
	if (last_error[0])
		seq_printf(file, "# error: %s\n", last_error);
	mutex_unlock(&nopal_lock);
	return 0;
}

static int open(struct inode *inode, struct file *file)
{
	if (!capable(CAP_SYS_ADMIN) && !capable(CAP_PERFMON))
		return -EPERM;
	/* The device put itself there. */
	file->private_data = 0;
	return single_open(file, show, 0);
}

/* A line is a command; the first that fails ends the write. */
static ssize_t write(struct file *file, const char __user *from, size_t length, loff_t *position)
{
	if (length > WRITTEN_AT_MOST)
		return -E2BIG;
	char *text = memdup_user_nul(from, length);
	if (IS_ERR(text))
		return PTR_ERR(text);
	int failed = 0;
	mutex_lock(&nopal_lock);
	for (size_t at = 0; !failed && at < length;) {
		size_t end = at;
		while (end < length && text[end] != '\n')
			end++;
		failed = nopal_command(text + at, end - at, last_error, sizeof last_error);
		at = end + 1;
	}
	mutex_unlock(&nopal_lock);
	kfree(text);
	return failed ? failed : length;
}

static int take_plan(void __user *argument)
{
	struct nopal_device_plan plan;
	if (copy_from_user(&plan, argument, sizeof plan))
		return -EFAULT;
	mutex_lock(&nopal_lock);
	int failed = nopal_plan_take(&plan);
	mutex_unlock(&nopal_lock);
	return failed ? failed : copy_to_user(argument, &plan, sizeof plan) ? -EFAULT : 0;
}

static int give_sites(void __user *argument)
{
	struct nopal_device_sites sites;
	if (copy_from_user(&sites, argument, sizeof sites))
		return -EFAULT;
	uint64_t __user *to = (uint64_t __user *)sites.addresses;
	int failed = 0;
	mutex_lock(&nopal_lock);
	sites.count = nopal_function_count;
	for (uint32_t i = 0; !failed && i < min(sites.count, sites.room); i++) {
		const struct nopal_function *function = &nopal_functions[i];
		uint64_t address = function->verdict == NOPAL_VERDICT_TRACED ? function->address : 0;
		failed = put_user(address, to + i);
	}
	mutex_unlock(&nopal_lock);
	return failed || copy_to_user(argument, &sites, sizeof sites) ? -EFAULT : 0;
}

static int give_markers(void __user *argument)
{
	struct nopal_device_markers markers;
	if (copy_from_user(&markers, argument, sizeof markers))
		return -EFAULT;
	mutex_lock(&nopal_lock);
	int failed = nopal_markers_tell(&markers);
	mutex_unlock(&nopal_lock);
	return failed ? failed : copy_to_user(argument, &markers, sizeof markers) ? -EFAULT : 0;
}

static int make_probe(void __user *argument)
{
	struct nopal_device_probe probe;
	if (copy_from_user(&probe, argument, sizeof probe))
		return -EFAULT;
	mutex_lock(&nopal_lock);
	int failed = nopal_probe_make(&probe);
	mutex_unlock(&nopal_lock);
	return failed ? failed : copy_to_user(argument, &probe, sizeof probe) ? -EFAULT : 0;
}

static long control(struct file *file, unsigned int what, unsigned long argument)
{
	switch (what) {
	case NOPAL_DEVICE_PLAN:
		return take_plan((void __user *)argument);
	case NOPAL_DEVICE_SITES:
		return give_sites((void __user *)argument);
	case NOPAL_DEVICE_MARKERS:
		return give_markers((void __user *)argument);
	case NOPAL_DEVICE_PROBE:
		return make_probe((void __user *)argument);
	default:
		return -ENOTTY;
	}
}

static int map(struct file *file, struct vm_area_struct *area)
{
	return nopal_context_map(area);
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = open,
	.read = seq_read,
	.llseek = seq_lseek,
	.write = write,
	.unlocked_ioctl = control,
	.mmap = map,
	.release = single_release,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nopal",
	.mode = 0600,
	.fops = &operations,
};

/* ---- /dev/nopal_latency: the worst case of the tracer that was last switched on ---- */

static int show_latency(struct seq_file *file, void *unused)
{
	mutex_lock(&nopal_lock);
	nopal_tracer_trace(file, 0);
	mutex_unlock(&nopal_lock);
	return 0;
}

static int open_latency(struct inode *inode, struct file *file)
{
	if (!capable(CAP_SYS_ADMIN) && !capable(CAP_PERFMON))
		return -EPERM;
	file->private_data = 0;
	return single_open(file, show_latency, 0);
}

static const struct file_operations latency_operations = {
	.owner = THIS_MODULE,
	.open = open_latency,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = single_release,
};

static struct miscdevice latency_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nopal_latency",
	.mode = 0400,
	.fops = &latency_operations,
};

int nopal_device_begin(void)
{
	int failed = misc_register(&device);
	if (failed)
		return failed;
	failed = misc_register(&latency_device);
	if (failed)
		misc_deregister(&device);
	return failed;
}

void nopal_device_end(void)
{
	misc_deregister(&latency_device);
	misc_deregister(&device);
}
