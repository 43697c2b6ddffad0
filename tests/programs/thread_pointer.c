/* A thread pointer that leads elsewhere for a while, set by the kernel, or with "instruction" by an instruction: to
 * unmapped memory, to memory that is no control block or looks like one, into the stack, and to another thread's block.
 * Functions, markers and signal handlers that run then are not recorded, and all others are; "unrecorded" says how often,
 * since a counted function counts these calls, too. */
#define _GNU_SOURCE
#include "hard.h"
#include <asm/prctl.h>
#include "../../include/nopal.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef ROUNDS
#define ROUNDS 300
#endif
#define LONE KEPT __attribute__((no_stack_protector))

/* Makes a system call without libc, which would use the thread pointer. */
static long raw(long number, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long answer;
	__asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return answer;
}

static int instructions;

static unsigned long get(void)
{
	unsigned long at = 0;
	raw(SYS_arch_prctl, ARCH_GET_FS, (long)&at, 0, 0);
	return at;
}

static void set(unsigned long at)
{
	if (instructions)
		__asm__ volatile("wrfsbase %0" : : "r"(at));
	else
		raw(SYS_arch_prctl, ARCH_SET_FS, (long)at, 0, 0);
}

LONE static long leaf(long n)
{
	NOPAL_MARK(leaf_reached, "%ld", n);
	EFFECT();
	return n + 1;
}

LONE static long tree(long n)
{
	return n > 0 ? RETURNED(tree(n - 1)) + RETURNED(leaf(n)) : 1;
}

/* Is entered and left with another thread pointer. */
LONE static void go(unsigned long at)
{
	set(at);
	EFFECT();
}

LONE static long astray(unsigned long at, long n)
{
	unsigned long own = get();
	go(at);
	long sum = RETURNED(tree(n));
	go(own);
	return sum;
}

static volatile int in_handlers;

LONE static long in_handler(long n)
{
	EFFECT();
	return n;
}

LONE static void on_signal(int signal)
{
	in_handlers += (int)in_handler(signal) > 0;
}


static unsigned long other_thread;
static volatile int stop;
static volatile long worked;

KEPT static void *work(void *unused)
{
	(void)unused;
	__atomic_store_n(&other_thread, get(), __ATOMIC_RELEASE);
	while (!stop) {
		CHECK(tree(10) == 66);
		worked++;
		usleep(50);
	}
	return NULL;
}

int main(int count, char **words)
{
	instructions = count > 1 && words[1][0] == 'i';
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
	while (!__atomic_load_n(&other_thread, __ATOMIC_ACQUIRE))
		usleep(100);
	unsigned long *page = mmap(NULL, 3 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(munmap(page + 1024, 4096) == 0);
	memset(page, 0xff, 2048);
	page[256] = (unsigned long)&page[256];
	unsigned long on_stack[512];
	memset(on_stack, 0x55, sizeof on_stack);
	signal(SIGUSR1, on_signal);
	const unsigned long places[] = {
		0, 1, (unsigned long)page, (unsigned long)&page[256], (unsigned long)(page + 1024) - 8,
		(unsigned long)(page + 1024), (unsigned long)on_stack, other_thread, 0x7ffffffff000 - 64,
	};
	const int number = sizeof places / sizeof *places;
	int process = getpid(), self = gettid();
	for (int round = 0; round < ROUNDS; round++)
		for (int i = 0; i < number; i++) {
			unsigned long own = get();
			CHECK(astray(places[i], 10) == 66);
			CHECK(get() == own);
			CHECK(tree(3) == 10);
			set(places[i]);
			raw(SYS_tgkill, process, self, SIGUSR1, 0);
			set(own);
		}
	stop = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(in_handlers == ROUNDS * number && worked > 0);
	puts("found its way back");
	printf("calls: %d astray\ncalls: 0 on_signal\n", ROUNDS * number);
	printf("calls: %ld tree\n", 4l * ROUNDS * number + 11 * worked);
	printf("calls: %ld leaf\n", 3l * ROUNDS * number + 10 * worked);
	printf("unrecorded: %d tree\n", 11 * ROUNDS * number);
	printf("unrecorded: %d leaf\n", 10 * ROUNDS * number);
	printf("unrecorded: %d on_signal\n", ROUNDS * number);
	return 0;
}
