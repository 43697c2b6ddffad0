/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The handler of our breakpoints: it leads to the detour of the probe, with all registers as they were. The tool makes
 * this the action of SIGTRAP while a process has breakpoints, with all signals blocked and `nopal_trap_return` behind
 * it. Nothing is recorded here: the detour does that when the signal is over, so a probe records in the same way,
 * whether a jump or a breakpoint leads to it.
 */
#include <stddef.h>

#include <asm/signal.h>
#include <asm/sigcontext.h>
#include <asm/siginfo.h>
#include <asm/ucontext.h>
#include <asm/unistd.h>

#include "process.h"
#include "system_call.h"

#define BREAKPOINT_BYTES 1

void nopal_trap(int signal, siginfo_t *information, struct ucontext *context);

/* 0: not one of ours. Entries are only added, so a thread may be stopped here at any time. */
static uint64_t detour_of(uint64_t address)
{
	const struct nopal_traps *traps = &nopal_process->traps;
	for (uint64_t i = 0; i < traps->count; i++)
		if (traps->breakpoints[i].address == address)
			return traps->breakpoints[i].detour;
	return 0;
}

void nopal_trap(int signal, siginfo_t *information, struct ucontext *context)
{
	/* The address behind the breakpoint. A signal sent by kill() is not a breakpoint, wherever the thread is. */
	uint64_t *at = (uint64_t *)&context->uc_mcontext.rip;
	uint64_t detour = information->si_code == SI_KERNEL ? detour_of(*at - BREAKPOINT_BYTES) : 0;
	if (detour) {
		*at = detour;
		return;
	}
	/* The program has no handler, since nopal inserts no breakpoints then: it dies of this signal after we return. */
	long process = system_call(__NR_getpid, 0, 0, 0, 0, 0, 0), thread = system_call(__NR_gettid, 0, 0, 0, 0, 0, 0);
	system_call(__NR_rt_sigaction, signal, (long)nopal_process->traps.before, 0, sizeof(uint64_t), 0, 0);
	system_call(__NR_rt_tgsigqueueinfo, process, thread, signal, (long)information, 0, 0);
}
