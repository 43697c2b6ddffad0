// SPDX-License-Identifier: MIT OR GPL-2.0
/* A function whose exit, a jump, has no prefix, as older compilers emit it; nothing calls it. */
#include <linux/module.h>

void nopal_leaves_through_r11(void);

noinline void nopal_leaves_through_r11(void)
{
	asm volatile("jmp __x86_indirect_thunk_r11");
}

static int __init begin(void)
{
	return 0;
}

static void __exit end(void)
{
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("an exit through r11, for tests");
