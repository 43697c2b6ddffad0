/* Handlers run while a thread waits for its submissions to a ring in the same call: its registers are kept. */
#define _GNU_SOURCE
#include "hard.h"
#include <errno.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

enum { ROUNDS = 12, BYTES = 4096 };

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

static void on_alarm(int signal)
{
	volatile char room[BYTES];
	memset((void *)room, 0xee, sizeof room);
	leaf(signal + room[0]);
}

/* Enters the ring with values in vector registers, which the kernel keeps. */
static long enter(int file, unsigned submitted)
{
	static const double before[2] = { 1.5, 2.5 };
	double after[2];
	long result;
	register long flags __asm__("r10") = IORING_ENTER_GETEVENTS;
	register long mask __asm__("r8") = 0;
	register long bytes __asm__("r9") = 0;
	__asm__ volatile("movupd %7, %%xmm7\n\tsyscall\n\tmovupd %%xmm7, %1"
			 : "=a"(result), "=m"(after)
			 : "a"(SYS_io_uring_enter), "D"(file), "S"(submitted), "d"(1), "r"(flags), "m"(before), "r"(mask),
			   "r"(bytes)
			 : "rcx", "r11", "memory", "xmm7");
	CHECK(memcmp(before, after, sizeof before) == 0);
	return result;
}

static void *mapped(int file, unsigned long at)
{
	void *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, (off_t)at);
	CHECK(memory != MAP_FAILED);
	return memory;
}

int main(void)
{
	static const struct __kernel_timespec time = { .tv_nsec = 400 * 1000000 };
	struct io_uring_params ring = { 0 };
	int file = (int)syscall(SYS_io_uring_setup, 1, &ring);
	if (file < 0) {
		puts("this kernel has no io_uring");
		return 0;
	}
	CHECK(ring.features & IORING_FEAT_SINGLE_MMAP);
	char *words = mapped(file, IORING_OFF_SQ_RING);
	struct io_uring_sqe *entry = mapped(file, IORING_OFF_SQES);
	unsigned *tail = (unsigned *)(words + ring.sq_off.tail);
	unsigned *head = (unsigned *)(words + ring.cq_off.head), *end = (unsigned *)(words + ring.cq_off.tail);
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 30000 }, { 0, 30000 } };
	CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		*entry = (struct io_uring_sqe){ .opcode = IORING_OP_TIMEOUT, .addr = (unsigned long)&time, .len = 1 };
		__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
		long result = enter(file, 1);
		CHECK(result == 1);
		while (__atomic_load_n(end, __ATOMIC_ACQUIRE) == *head) {
			result = enter(file, 0);
			CHECK(result >= 0 || result == -EINTR);
		}
		__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	}
	puts("kept");
}
