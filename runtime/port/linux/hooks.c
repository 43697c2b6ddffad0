/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Hooks that run before certain functions of libc and the loader, or in their place. The stubs in arch/ call these with
 * the call's arguments.
 */
#include "hooks.h"
#include "core.h"
#include "mark.h"
#include "port.h"

#include <asm/signal.h>
#include <asm/unistd.h>
#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>

/* _dl_debug_state: the loader is about to map or unmap libraries, or has done so; none of their code has run. */
void nopal_before_libraries(struct nopal_arguments *arguments)
{
	(void)arguments;
	const uint32_t *state = nopal_process->loader_state;
	if (state && __atomic_load_n(state, __ATOMIC_RELAXED))
		return;
	nopal_make_request(nopal_process, NOPAL_REQUEST_LIBRARIES, 0, NOPAL_NO_DESCRIPTOR);
}

void nopal_before_exec(struct nopal_arguments *arguments)
{
	nopal_make_request(nopal_process, NOPAL_REQUEST_EXEC, arguments->integer[0], NOPAL_NO_DESCRIPTOR);
}

/* execveat: a path relative to a descriptor, or an empty one. */
void nopal_before_exec_at(struct nopal_arguments *arguments)
{
	nopal_make_request(nopal_process, NOPAL_REQUEST_EXEC, arguments->integer[1], (int32_t)arguments->integer[0]);
}

/* fexecve */
void nopal_before_exec_descriptor(struct nopal_arguments *arguments)
{
	nopal_make_request(nopal_process, NOPAL_REQUEST_EXEC, 0, (int32_t)arguments->integer[0]);
}

/* mlockall. The kernel compares the size of the whole address space with the limit of locked memory, so nopal's memory
 * can make it fail. The tool knows the limit and the sizes, and recognises other reasons; then errno stays as the call
 * left it. */
int nopal_lock_all(uint64_t flags, uint64_t unused, nopal_lock_all_function *original)
{
	(void)unused;
	int answer = original((int)flags);
	if (answer && !nopal_process->quiet &&
	    nopal_make_request(nopal_process, NOPAL_REQUEST_LOCK, (uint32_t)flags, NOPAL_NO_DESCRIPTOR))
		return 0;
	return answer;
}

/* Notes the name that a thread gives itself in its chunk: it may end before the tool asks for it. Only memory that the
 * kernel reads for the call is read: a page behind it may be one that the thread would wait for. */
static void note_name(uint64_t address)
{
	uint64_t name[2] = { 0, 0 };
	struct nopal_text text;
	if (!nopal_measure(address, sizeof name - 1, &text))
		return;
	/* With the end, without which the call fails. */
	uint32_t length = text.length < sizeof name - 1 ? text.length + 1 : sizeof name - 1;
	struct nopal_context *context = nopal_context_get(nopal_process);
	/* A child of vfork has the context of its parent. */
	if (!context || context->thread != port_thread_id() || !nopal_read(address, name, length))
		return;
	/* A handler could hand the chunk over, and another thread get it. */
	uint64_t signals = port_block_signals();
	if (context->position)
		__builtin_memcpy(nopal_chunk_of(context->position)->uuid, name, sizeof name);
	port_restore_signals(signals);
}

/* Has the tool take jumps out before the program goes on. A tool that leaves is not asked any more, and does it soon. */
static void have_text_back(uint32_t what, uint64_t low, int32_t pages)
{
	if (!nopal_make_request(nopal_process, what, low, pages) &&
	    __atomic_load_n(&nopal_process->region->tool_gone, __ATOMIC_RELAXED))
		nopal_wait_for_text(nopal_process);
}

/* Some calls must fail and change nothing, as libseccomp makes them to probe the kernel: a filter at address 0, or
 * strict mode with arguments. */
void nopal_before_prctl(struct nopal_arguments *arguments)
{
	if ((uint32_t)arguments->integer[0] == PR_SET_SECCOMP) {
		uint64_t mode = arguments->integer[1];
		if (mode == SECCOMP_MODE_STRICT || (mode == SECCOMP_MODE_FILTER && arguments->integer[2]))
			nopal_fall_quiet(mode == SECCOMP_MODE_STRICT);
	}
	if ((uint32_t)arguments->integer[0] == PR_SET_NAME)
		note_name(arguments->integer[1]);
	/* System calls of this thread from most places become signals, as Wine needs it. */
	if ((uint32_t)arguments->integer[0] == PR_SET_SYSCALL_USER_DISPATCH && arguments->integer[1] != PR_SYS_DISPATCH_OFF)
		nopal_fall_quiet(false);
	/* A tool without the right to trace secret processes could not leave this one any more. */
	if ((uint32_t)arguments->integer[0] == PR_SET_DUMPABLE && !arguments->integer[1] &&
	    !__atomic_load_n(&nopal_process->text_is_back, __ATOMIC_ACQUIRE))
		have_text_back(NOPAL_REQUEST_SECRET, 0, NOPAL_NO_DESCRIPTOR);
	/* Reading the counter faults, in this thread and those that it creates. */
	if ((uint32_t)arguments->integer[0] == PR_SET_TSC && arguments->integer[1] == PR_TSC_SIGSEGV) {
		struct nopal_context *context = nopal_context_get(nopal_process);
		if (context)
			nopal_mute_thread(context);
	}
}

void nopal_before_seccomp(struct nopal_arguments *arguments)
{
	uint32_t operation = (uint32_t)arguments->integer[0];
	uint64_t flags = arguments->integer[1], filter = arguments->integer[2];
	if (operation == SECCOMP_SET_MODE_STRICT ? !flags && !filter : operation == SECCOMP_SET_MODE_FILTER && filter)
		nopal_fall_quiet(operation == SECCOMP_SET_MODE_STRICT);
}

/* sigaction. The program sees and sets its own action: the tool removes breakpoints and their handler first. */
void nopal_before_signal_action(struct nopal_arguments *arguments)
{
	if ((uint32_t)arguments->integer[0] == SIGTRAP && nopal_process->traps.ours[0])
		nopal_make_request(nopal_process, NOPAL_REQUEST_TRAPS, 0, NOPAL_NO_DESCRIPTOR);
}

/* The program is about to change or move memory, perhaps text with jumps: the tool takes these out first. */
static void have_own_text(uint64_t low, uint64_t bytes)
{
	if (!bytes)
		return;
	/* The last page counts as a whole. */
	uint64_t pages = (bytes - 1) / NOPAL_REQUEST_PAGE_BYTES + 1, high = low + pages * NOPAL_REQUEST_PAGE_BYTES;
	if (high <= low)
		high = ~0ull;
	if (__atomic_load_n(&nopal_process->text_is_back, __ATOMIC_ACQUIRE))
		return;
	uint32_t count = __atomic_load_n(&nopal_process->block_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count; i++) {
		const struct nopal_block *block = &nopal_process->blocks[i];
		if (low >= block->text_high || high <= block->text_low)
			continue;
		int32_t number = pages < INT32_MAX ? (int32_t)pages : INT32_MAX;
		have_text_back(NOPAL_REQUEST_TEXT, low, number);
		return;
	}
}

/* mprotect and pkey_mprotect. A program that makes its text writable is about to change it, and may change a part of a
 * jump, or look for the bytes that it displaced. */
void nopal_before_protect(struct nopal_arguments *arguments)
{
	if (arguments->integer[2] & PROT_WRITE)
		have_own_text(arguments->integer[0], arguments->integer[1]);
}

/* mremap. At another address a jump leads elsewhere, and a part of one may be where other memory comes. */
void nopal_before_move(struct nopal_arguments *arguments)
{
	uint64_t flags = arguments->integer[3];
	if (flags & MREMAP_MAYMOVE)
		have_own_text(arguments->integer[0], arguments->integer[1]);
	if (flags & MREMAP_FIXED)
		have_own_text(arguments->integer[4], arguments->integer[2]);
}

void nopal_before_system_call(struct nopal_arguments *arguments)
{
	struct nopal_arguments rest;
	for (int i = 0; i < 5; i++)
		rest.integer[i] = arguments->integer[i + 1];
	rest.integer[5] = 0;
	switch (arguments->integer[0]) {
	case __NR_rt_sigaction:
		nopal_before_signal_action(&rest);
		break;
	case __NR_prctl:
		nopal_before_prctl(&rest);
		break;
	case __NR_seccomp:
		nopal_before_seccomp(&rest);
		break;
	case __NR_mprotect:
	case __NR_pkey_mprotect:
		nopal_before_protect(&rest);
		break;
	case __NR_mremap:
		nopal_before_move(&rest);
		break;
	case __NR_execve:
		nopal_before_exec(&rest);
		break;
	case __NR_execveat:
		nopal_before_exec_at(&rest);
		break;
	}
}
