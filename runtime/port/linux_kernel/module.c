// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * nopal.ko: functions of the running kernel, recorded by the same core as those of programs.
 */
#include <linux/moduleparam.h>
#include <asm/cpufeature.h>
#include "module.h"

static uint buffer = 16;
module_param(buffer, uint, 0444);
MODULE_PARM_DESC(buffer, "MiB of records that wait to be read, 1 to 4096");

static int __init begin(void)
{
	if (boot_cpu_has(X86_FEATURE_XENPV)) {
		pr_err("nopal: not under Xen's paravirtualisation: instructions that it forbids are used\n");
		return -EOPNOTSUPP;
	}
	if (nopal_device_permits()) {
		pr_err("nopal: this kernel is locked down, and lets nobody read its memory\n");
		return -EPERM;
	}
	if (buffer < 1 || buffer > 4096)
		return -EINVAL;
	int failed = nopal_symbols_find();
	if (failed)
		return failed;
	failed = nopal_context_begin((buffer << 20) / NOPAL_CHUNK_BYTES);
	if (failed)
		goto no_context;
	failed = nopal_text_begin();
	if (failed)
		goto no_text;
	failed = nopal_functions_begin();
	if (failed)
		goto no_functions;
	failed = nopal_tracers_begin();
	if (failed)
		goto no_tracers;
	failed = nopal_markers_begin();
	if (failed)
		goto no_markers;
	nopal_context_run(true);
	failed = nopal_device_begin();
	if (failed)
		goto no_device;
	return 0;
no_device:
	nopal_markers_end();
no_markers:
	nopal_tracers_end();
no_tracers:
	nopal_functions_end();
no_functions:
	nopal_text_end();
no_text:
	nopal_context_end();
no_context:
	nopal_held_end();
	return failed;
}

static void __exit end(void)
{
	nopal_device_end();
	nopal_probes_end();
	nopal_markers_end();
	nopal_tracers_end();
	nopal_functions_end();
	nopal_traces_end();
	nopal_text_end();
	nopal_context_end();
	nopal_held_end();
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("nopal: functions of the running kernel, switched on and off by text");
