// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * /dev/nopal: commands in, the state out, the tool's plan, and the region. /dev/nopal_trace and /dev/nopal_latency: text.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include "module.h"
#include "records.h"

#define WRITTEN_AT_MOST 65536
#define ERROR_BYTES 512
#define LINES_BYTES 65536
#define LINE_BYTES 128

/* Why the last command failed, for the next read. Under nopal_lock. */
static char last_error[ERROR_BYTES];

static int show(struct seq_file *file, void *unused)
{
	mutex_lock(&nopal_lock);
	nopal_traces_show(file);
	uint32_t traced = 0;
	for (uint32_t i = 0; i < nopal_function_count; i++)
		traced += nopal_functions[i].verdict == NOPAL_VERDICT_TRACED;
	seq_printf(file, "# %u functions can be traced\n", traced);
	nopal_context_show_lost(file);
	seq_printf(file, "# longest stop of all processors: %llu ns\n", nopal_text_longest_stop);
	if (last_error[0])
		seq_printf(file, "# error: %s\n", last_error);
	mutex_unlock(&nopal_lock);
	return 0;
}

int nopal_device_permits(void)
{
	if (!perfmon_capable())
		return -EPERM;
	/* Refused where the kernel's memory may not be read, as by kprobes. */
	return security_locked_down(LOCKDOWN_KPROBES);
}

static bool shows_addresses(const struct file *file)
{
	return nopal_symbols.shows_addresses(file->f_cred);
}

static int open(struct inode *inode, struct file *file)
{
	int failed = nopal_device_permits();
	if (failed)
		return failed;
	/* The misc device has put itself there. */
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
	uint32_t first = nopal_function_count;
	int failed = nopal_plan_take(&plan);
	if (!failed)
		failed = nopal_traces_extend(first);
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

static int give_verdicts(void __user *argument)
{
	struct nopal_device_verdicts verdicts;
	if (copy_from_user(&verdicts, argument, sizeof verdicts))
		return -EFAULT;
	struct nopal_device_verdict __user *to = (void __user *)verdicts.verdicts;
	int failed = 0;
	mutex_lock(&nopal_lock);
	verdicts.count = nopal_function_count;
	for (uint32_t i = 0; !failed && i < min(verdicts.count, verdicts.room); i++) {
		const struct nopal_function *function = &nopal_functions[i];
		struct nopal_device_verdict verdict = { function->address, function->verdict };
		failed = copy_to_user(to + i, &verdict, sizeof verdict);
	}
	mutex_unlock(&nopal_lock);
	return failed || copy_to_user(argument, &verdicts, sizeof verdicts) ? -EFAULT : 0;
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

static int count_modules(void __user *argument)
{
	mutex_lock(&nopal_lock);
	struct nopal_device_modules modules = nopal_modules;
	mutex_unlock(&nopal_lock);
	return copy_to_user(argument, &modules, sizeof modules) ? -EFAULT : 0;
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
		return shows_addresses(file) ? give_sites((void __user *)argument) : -EPERM;
	case NOPAL_DEVICE_VERDICTS:
		return shows_addresses(file) ? give_verdicts((void __user *)argument) : -EPERM;
	case NOPAL_DEVICE_MARKERS:
		return give_markers((void __user *)argument);
	case NOPAL_DEVICE_PROBE:
		return make_probe((void __user *)argument);
	case NOPAL_DEVICE_MODULES:
		return count_modules((void __user *)argument);
	default:
		return -ENOTTY;
	}
}

static int map(struct file *file, struct vm_area_struct *area)
{
	/* Arguments may be addresses. */
	int failed = shows_addresses(file) ? nopal_context_map(area) : -EPERM;
	if (!failed)
		((struct seq_file *)file->private_data)->private = file;
	return failed;
}

/* A recording's file closes when it is mapped no more. The recording's state, and the records that it left in the
 * buffer, are dropped then, also if its tool was killed. */
static int close(struct inode *inode, struct file *file)
{
	bool was_mapped = ((struct seq_file *)file->private_data)->private;
	mutex_lock(&nopal_lock);
	if (was_mapped && !nopal_context_is_mapped())
		nopal_traces_reset(last_error, sizeof last_error);
	mutex_unlock(&nopal_lock);
	return single_release(inode, file);
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = open,
	.read = seq_read,
	.llseek = seq_lseek,
	.write = write,
	.unlocked_ioctl = control,
	.mmap = map,
	.release = close,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nopal",
	.mode = 0600,
	.fops = &operations,
};

/* ---- /dev/nopal_trace: the records, a line each; a line that was read is gone ---- */

struct lines {
	struct mutex lock;
	size_t read, used;
	char bytes[LINES_BYTES];
};

static int open_trace(struct inode *inode, struct file *file)
{
	int failed = nopal_device_permits();
	if (failed)
		return failed;
	if (!shows_addresses(file))
		return -EPERM;
	struct lines *lines = kvzalloc(sizeof *lines, GFP_KERNEL);
	if (!lines)
		return -ENOMEM;
	mutex_init(&lines->lock);
	file->private_data = lines;
	return nonseekable_open(inode, file);
}

/* Takes no more lines out of the buffer than are read; the last one is taken whole. */
static ssize_t read_trace(struct file *file, char __user *to, size_t length, loff_t *position)
{
	struct lines *lines = file->private_data;
	if (mutex_lock_interruptible(&lines->lock))
		return -ERESTARTSYS;
	ssize_t bytes = 0;
	if (lines->read == lines->used) {
		mutex_lock(&nopal_lock);
		bytes = nopal_records_text(lines->bytes, clamp_t(size_t, length, 2 * LINE_BYTES, LINES_BYTES));
		mutex_unlock(&nopal_lock);
		lines->read = 0;
		lines->used = max_t(ssize_t, bytes, 0);
	}
	if (bytes >= 0) {
		bytes = min(length, lines->used - lines->read);
		if (copy_to_user(to, lines->bytes + lines->read, bytes))
			bytes = -EFAULT;
		else
			lines->read += bytes;
	}
	mutex_unlock(&lines->lock);
	return bytes;
}

static int close_trace(struct inode *inode, struct file *file)
{
	kvfree(file->private_data);
	return 0;
}

static const struct file_operations trace_operations = {
	.owner = THIS_MODULE,
	.open = open_trace,
	.read = read_trace,
	.release = close_trace,
};

static struct miscdevice trace_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nopal_trace",
	.mode = 0400,
	.fops = &trace_operations,
};

/* ---- /dev/nopal_latency: the worst case of the tracer that was last switched on ---- */

/* For 2,000 rows. */
#define LATENCY_BYTES (256 << 10)

static int show_latency(struct seq_file *file, void *unused)
{
	mutex_lock(&nopal_lock);
	nopal_tracer_trace(file, 0);
	mutex_unlock(&nopal_lock);
	return 0;
}

static int open_latency(struct inode *inode, struct file *file)
{
	int failed = nopal_device_permits();
	if (failed)
		return failed;
	file->private_data = 0;
	/* Otherwise, all would be made again for each doubling of its room. */
	return single_open_size(file, show_latency, 0, LATENCY_BYTES);
}

/* A word of the kernel's trace_options. */
static ssize_t choose(struct file *file, const char __user *from, size_t length, loff_t *position)
{
	char word[16] = "";
	if (length >= sizeof word)
		return -EINVAL;
	if (copy_from_user(word, from, length))
		return -EFAULT;
	mutex_lock(&nopal_lock);
	int failed = nopal_tracer_option(strim(word));
	mutex_unlock(&nopal_lock);
	return failed ? failed : length;
}

static const struct file_operations latency_operations = {
	.owner = THIS_MODULE,
	.open = open_latency,
	.read = seq_read,
	.write = choose,
	.llseek = seq_lseek,
	.release = single_release,
};

static struct miscdevice latency_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nopal_latency",
	.mode = 0600,
	.fops = &latency_operations,
};

static struct miscdevice *const devices[] = { &device, &trace_device, &latency_device };

int nopal_device_begin(void)
{
	for (int i = 0; i < ARRAY_SIZE(devices); i++) {
		int failed = misc_register(devices[i]);
		if (!failed)
			continue;
		while (i--)
			misc_deregister(devices[i]);
		return failed;
	}
	return 0;
}

void nopal_device_end(void)
{
	for (int i = 0; i < ARRAY_SIZE(devices); i++)
		misc_deregister(devices[i]);
}
