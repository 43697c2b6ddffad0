/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * A Linux process as host, by system calls of our own: errno, libc's locks and its cancellation points stay out of it.
 */
#include "port.h"

#include <asm/errno.h>
#include <asm/signal.h>
#include <asm/unistd.h>
#include <linux/futex.h>
#include <linux/mman.h>
#include <linux/prctl.h>

#include "system_call.h"

#ifndef MADV_NOHUGEPAGE
#define MADV_NOHUGEPAGE 15
#endif
#ifndef MADV_DONTDUMP
#define MADV_DONTDUMP 16
#endif
#define READ_WRITE 3
#define SIG_SETMASK_NUMBER 2

uint64_t port_clock(void)
{
	return counter_read();
}

bool port_clock_allowed(void)
{
	int mode = 0;
	long answer = system_call(__NR_prctl, PR_GET_TSC, (long)&mode, 0, 0, 0, 0);
	return answer || mode == PR_TSC_ENABLE;
}

uint32_t port_thread_id(void)
{
	return (uint32_t)system_call(__NR_gettid, 0, 0, 0, 0, 0, 0);
}

uint32_t port_process_id(void)
{
	return (uint32_t)system_call(__NR_getpid, 0, 0, 0, 0, 0, 0);
}

bool port_thread_ended(uint32_t process, uint32_t thread)
{
	const int nothing = 0;
	return system_call(__NR_tgkill, (long)process, (long)thread, nothing, 0, 0, 0) == -ESRCH;
}

uintptr_t port_thread_pointer(void)
{
	return nopal_thread_pointer();
}

/* The kernel reads the set before it checks the operation, which is invalid here. */
bool port_readable(uintptr_t address)
{
	const int nothing = -1;
	return system_call(__NR_rt_sigprocmask, nothing, (long)address, 0, sizeof(uint64_t), 0, 0) == -EINVAL;
}

static long read_as_others_do(uint64_t address, void *to, uint32_t bytes)
{
	struct {
		uint64_t address;
		uint64_t bytes;
	} ours = { (uint64_t)to, bytes }, theirs = { address, bytes };
	return system_call(__NR_process_vm_readv, port_process_id(), (long)&ours, 1, (long)&theirs, 1, 0);
}

bool port_map_mirror(uintptr_t address, uint64_t bytes, uintptr_t slot)
{
	char byte;
	/* Such as memory of memfd_secret and of devices. If the call is missing or forbidden, the memory counts as
	 * readable. */
	if (read_as_others_do(slot, &byte, sizeof byte) == -EFAULT)
		return false;
	long answer = system_call(__NR_mmap, (long)address, (long)bytes, READ_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (answer != (long)address) {
		/* Kernels before 4.17 take the address as a hint. */
		if (answer > 0)
			system_call(__NR_munmap, answer, (long)bytes, 0, 0, 0, 0);
		return false;
	}
	system_call(__NR_madvise, answer, (long)bytes, MADV_NOHUGEPAGE, 0, 0, 0);
	system_call(__NR_madvise, answer, (long)bytes, MADV_DONTDUMP, 0, 0, 0);
	/* After mlockall(MCL_FUTURE) it would count towards the program's limit of locked memory. */
	system_call(__NR_munlock, answer, (long)bytes, 0, 0, 0, 0);
	return true;
}

bool port_read(uint64_t address, void *to, uint32_t bytes)
{
	return read_as_others_do(address, to, bytes) == (long)bytes;
}

uint64_t port_block_signals(void)
{
	/* Except SIGTRAP, for which the kernel kills a thread that blocks it: a program may single-step itself. */
	uint64_t all = ~((uint64_t)1 << (SIGTRAP - 1)), before = 0;
	system_call(__NR_rt_sigprocmask, SIG_SETMASK_NUMBER, (long)&all, (long)&before, sizeof all, 0, 0);
	return before;
}

void port_restore_signals(uint64_t saved)
{
	system_call(__NR_rt_sigprocmask, SIG_SETMASK_NUMBER, (long)&saved, 0, sizeof saved, 0, 0);
}

bool port_wait(uint32_t *word, uint32_t value, uint64_t nanoseconds)
{
	struct {
		long seconds;
		long nanoseconds;
	} time = { (long)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000) };
	return system_call(__NR_futex, (long)word, FUTEX_WAIT, value, (long)&time, 0, 0) == -ETIMEDOUT;
}

void port_wake(uint32_t *word)
{
	system_call(__NR_futex, (long)word, FUTEX_WAKE, INT32_MAX, 0, 0, 0);
}

void port_yield(void)
{
	system_call(__NR_sched_yield, 0, 0, 0, 0, 0, 0);
}

void port_allow_tracer(uint32_t tracer)
{
	system_call(__NR_prctl, PR_SET_PTRACER, tracer, 0, 0, 0, 0);
}
