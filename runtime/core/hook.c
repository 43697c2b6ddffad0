/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * What happens before certain functions of libc's run. The stubs in arch/ call these with the call's arguments.
 */
#include "stubs.h"

#define SIGNAL_TRAP 5
#define PR_SET_SECCOMP 22
#define PR_SET_TSC 26
#define TSC_FAULTS 2
#define SECCOMP_STRICT 1
#define SECCOMP_FILTER 2
#define SECCOMP_SET_STRICT 0
#define SECCOMP_SET_FILTER 1
#define SYSTEM_CALL_SIGNAL_ACTION 13
#define SYSTEM_CALL_PRCTL 157
#define SYSTEM_CALL_SECCOMP 317
#define SYSTEM_CALL_EXECVE 59
#define SYSTEM_CALL_EXECVEAT 322

static bool is_on(struct nopal_context *context, const struct nopal_arguments *arguments)
{
	struct nopal_range range = nopal_range_load(context);
	return (uint64_t)arguments - range.low < range.span;
}

/* longjmp, setcontext, swapcontext: the next event may be anywhere on this stack, or on another one. Costs the fast
 * path nothing. */
void nopal_before_jump(struct nopal_arguments *arguments)
{
	struct nopal_context *context = nopal_context_get(nopal_process);
	if (context && (is_on(context, arguments) || nopal_context_is_own(nopal_process, context))) {
		context->reason = NOPAL_RESYNC_JUMP;
		nopal_range_forget_any(context);
		context->waiting = 0;
	}
}

/* _dl_debug_state: the loader has mapped or unmapped libraries, and none of their code has run yet. */
void nopal_before_libraries(struct nopal_arguments *arguments)
{
	(void)arguments;
	nopal_ask(nopal_process, NOPAL_ASK_LIBRARIES, 0, NOPAL_NO_DESCRIPTOR);
}

void nopal_before_exec(struct nopal_arguments *arguments)
{
	nopal_ask(nopal_process, NOPAL_ASK_EXEC, arguments->integer[0], NOPAL_NO_DESCRIPTOR);
}

/* execveat: a path relative to a descriptor, or an empty one. */
void nopal_before_exec_at(struct nopal_arguments *arguments)
{
	nopal_ask(nopal_process, NOPAL_ASK_EXEC, arguments->integer[1], (int32_t)arguments->integer[0]);
}

/* fexecve */
void nopal_before_exec_descriptor(struct nopal_arguments *arguments)
{
	nopal_ask(nopal_process, NOPAL_ASK_EXEC, 0, (int32_t)arguments->integer[0]);
}

/* mlockall. The kernel compares the size of the whole address space with what the user may lock: nopal's memory can
 * make it fail that would succeed without. It also fails for other reasons, and the tool, which knows the limit and the
 * sizes, tells them apart; then errno stays as the call has left it. */
int nopal_lock_all(uint64_t flags, uint64_t unused, nopal_lock_all_function *original)
{
	(void)unused;
	int answer = original((int)flags);
	if (answer && !nopal_process->quiet &&
	    nopal_ask(nopal_process, NOPAL_ASK_LOCK, (uint32_t)flags, NOPAL_NO_DESCRIPTOR))
		return 0;
	return answer;
}

static void mute_thread(struct nopal_context *context)
{
	if (!context->muted)
		__atomic_add_fetch(&nopal_process->region->threads_muted, 1, __ATOMIC_RELAXED);
	context->muted = 1;
	nopal_range_forget_any(context);
}

/* From here on no thread of this process makes a system call for us: a filter may kill for it. */
static void fall_quiet(bool mute)
{
	struct nopal_process *process = nopal_process;
	struct nopal_context *context = nopal_context_get(process);
	if (context && mute)
		mute_thread(context);
	__atomic_store_n(&process->quiet, 1, __ATOMIC_RELAXED);
}

/* A call that must fail, as libseccomp makes some to find out what the kernel can do, confines nobody: a filter at
 * address 0, or strict mode with arguments. */
void nopal_before_prctl(struct nopal_arguments *arguments)
{
	if ((uint32_t)arguments->integer[0] == PR_SET_SECCOMP) {
		uint64_t mode = arguments->integer[1];
		if (mode == SECCOMP_STRICT || (mode == SECCOMP_FILTER && arguments->integer[2]))
			fall_quiet(mode == SECCOMP_STRICT);
	}
	/* The counter faults, in this thread and those it makes. */
	if ((uint32_t)arguments->integer[0] == PR_SET_TSC && arguments->integer[1] == TSC_FAULTS) {
		struct nopal_context *context = nopal_context_get(nopal_process);
		if (context)
			mute_thread(context);
	}
}

void nopal_before_seccomp(struct nopal_arguments *arguments)
{
	uint32_t operation = (uint32_t)arguments->integer[0];
	uint64_t flags = arguments->integer[1], filter = arguments->integer[2];
	if (operation == SECCOMP_SET_STRICT ? !flags && !filter : operation == SECCOMP_SET_FILTER && filter)
		fall_quiet(operation == SECCOMP_SET_STRICT);
}

/* sigaction. What the program sees and sets is its own: the tool takes breakpoints and their handler out before. */
void nopal_before_signal_action(struct nopal_arguments *arguments)
{
	if ((uint32_t)arguments->integer[0] == SIGNAL_TRAP && nopal_process->traps.ours[0])
		nopal_ask(nopal_process, NOPAL_ASK_TRAPS, 0, NOPAL_NO_DESCRIPTOR);
}

void nopal_before_system_call(struct nopal_arguments *arguments)
{
	struct nopal_arguments rest;
	for (int i = 0; i < 5; i++)
		rest.integer[i] = arguments->integer[i + 1];
	rest.integer[5] = 0;
	switch (arguments->integer[0]) {
	case SYSTEM_CALL_SIGNAL_ACTION:
		nopal_before_signal_action(&rest);
		break;
	case SYSTEM_CALL_PRCTL:
		nopal_before_prctl(&rest);
		break;
	case SYSTEM_CALL_SECCOMP:
		nopal_before_seccomp(&rest);
		break;
	case SYSTEM_CALL_EXECVE:
		nopal_before_exec(&rest);
		break;
	case SYSTEM_CALL_EXECVEAT:
		nopal_before_exec_at(&rest);
		break;
	}
}
