/* Calls are single-stepped by the trap flag, and the handler
 *     throw: throws an exception, at every instruction
 *     slow: does the same, at every eleventh instruction, where every call takes the tracer's slow path
 *     pass: while an exception passes through the calls, asks for a backtrace at every instruction that belongs to
 *           no file: the tracer's, if there is one
 * Compiled without -fnon-call-exceptions: functions that have handlers or clean up throw none. */
#include "hard.h"
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100

static volatile bool stepping, throwing;
static volatile long step, first, acts, destroyed;
static volatile long begun_leaf, begun_middle, begun_tail, begun_drive;

int main(int count, char **words);
static const char *mode;

struct thrown_by_handler {
	long value;
};

extern "C" {

KEPT int calm(int n)
{
	EFFECT();
	return n + 1;
}

KEPT long leaf(long a, long b, long c, long d, long e, long f, long g)
{
	begun_leaf++;
	long sum = a + b + c + d + e + f + g;
	EFFECT();
	if (throwing)
		throw thrown_by_handler{sum};
	return sum;
}

KEPT long middle(long n)
{
	begun_middle++;
	volatile char room[n * 16];
	room[0] = 1;
	long sum = RETURNED(leaf(n, 1, 2, 3, 4, 5, room[0]));
	return sum + RETURNED(leaf(1, n, 2, 3, 4, room[0], 6));
}

KEPT long tail(long n)
{
	begun_tail++;
	return middle(n + 1);
}

struct cleaner {
	~cleaner() { destroyed++; }
};

KEPT long guarded(long n)
{
	cleaner object;
	return RETURNED(tail(n)) + 1;
}

KEPT long drive(long n)
{
	begun_drive++;
	long sum;
	try {
		sum = RETURNED(guarded(n));
	} catch (const thrown_by_handler &exception) {
		sum = -exception.value;
	}
	stepping = false;
	EFFECT();
	return sum;
}

}

static const void *function_of(const void *address)
{
	Dl_info found;
	return dladdr(address, &found) ? found.dli_saddr : nullptr;
}

static uintptr_t files[64][2];
static unsigned file_count;

static int list_file(dl_phdr_info *information, size_t, void *)
{
	for (int i = 0; i < information->dlpi_phnum; i++) {
		const ElfW(Phdr) &part = information->dlpi_phdr[i];
		if (part.p_type != PT_LOAD || !(part.p_flags & PF_X))
			continue;
		CHECK(file_count < 64);
		files[file_count][0] = information->dlpi_addr + part.p_vaddr;
		files[file_count++][1] = information->dlpi_addr + part.p_vaddr + part.p_memsz;
	}
	return 0;
}

/* Makes no call that could be recorded, as it runs at every step: an event between any two instructions would keep the
 * interrupted recording from ever being completed. */
static inline __attribute__((always_inline)) bool belongs_to_a_file(uintptr_t address)
{
	for (unsigned i = 0; i < file_count; i++)
		if (address - files[i][0] < files[i][1] - files[i][0])
			return true;
	return false;
}

/* From the innermost known frame outwards, all frames are there. */
static void walk(const void *interrupted)
{
	const void *const chain[] = {(void *)leaf, (void *)middle, (void *)guarded, (void *)drive, (void *)main};
	void *frames[128];
	int count = backtrace(frames, 128);
	CHECK(count < 128);
	unsigned next = 0;
	for (int i = 0; i < count; i++) {
		const void *function = function_of((const char *)frames[i] - (frames[i] != interrupted));
		for (unsigned j = 0; j < 5; j++)
			if (function == chain[j]) {
				CHECK(next == 0 || j == next);
				next = j + 1;
			}
	}
	CHECK(next == 5);
}

static volatile bool thrown;

extern "C" void on_trap(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	if (information->si_code != TRAP_TRACE) {
		registers[REG_EFL] |= TRAP_FLAG;
		return;
	}
	if (!stepping) {
		registers[REG_EFL] &= ~TRAP_FLAG;
		return;
	}
	const void *interrupted = (const void *)registers[REG_RIP];
	if (*mode == 'p') {
		if (!belongs_to_a_file((uintptr_t)interrupted))
			walk(interrupted);
		return;
	}
	if (++step != first)
		return;
	acts++;
	const void *function = function_of(interrupted);
	/* These functions handle or clean up. */
	if (function == (void *)main || function == (void *)drive || function == (void *)guarded)
		return;
	stepping = false;
	thrown = true;
	throw thrown_by_handler{1};
}

static jmp_buf here;

/* Keeps the next event of this thread off the tracer's fast path. */
KEPT static void disturb()
{
	if (setjmp(here) == 0)
		longjmp(here, 1);
}

int main(int count, char **words)
{
	CHECK(count == 2);
	mode = words[1];
	throwing = *mode == 'p';
	void *frames[4];
	CHECK(backtrace(frames, 4) > 1);
	CHECK(function_of((void *)leaf) == (void *)leaf && !belongs_to_a_file(8));
	dl_iterate_phdr(list_file, nullptr);
	CHECK(belongs_to_a_file((uintptr_t)leaf) && belongs_to_a_file((uintptr_t)(void *)printf));
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_trap;
	/* The exception leaves the handler with the signal unblocked. */
	action.sa_flags = SA_SIGINFO | SA_NODEFER;
	CHECK(sigaction(SIGTRAP, &action, nullptr) == 0);
	const long most = *mode == 't' ? 640 : *mode == 's' ? 200 : 2;
	const long right = drive(3);
	long jumps = 0;
	for (long round = 0; round < most; round++) {
		first = *mode == 's' ? 11 * round : round;
		step = 0;
		thrown = false;
		if (*mode == 's')
			disturb();
		long before = destroyed;
		stepping = true;
		long got;
		try {
			__asm__ volatile("int3");
			got = drive(3);
		} catch (const thrown_by_handler &) {
			got = -1;
		}
		CHECK(got == (thrown ? -1 : right));
		/* A guard that had not begun, or was done, is not cleaned up. */
		CHECK(destroyed == before + 1 || (thrown && destroyed == before));
		jumps += thrown;
		CHECK(calm(1) == 2);
	}
	puts("stepped");
	printf("calls: %ld calm\n", most);
	if (*mode == 'p') {
		const char *const names[] = {"drive", "guarded", "tail", "middle", "leaf"};
		for (const char *name : names)
			printf("calls: %ld %s\n", most + 1, name);
	} else {
		CHECK(jumps > 3);
		printf("between: %ld %ld leaf\n", begun_leaf, begun_leaf + jumps);
		printf("between: %ld %ld middle\n", begun_middle, begun_middle + jumps);
		printf("between: %ld %ld tail\n", begun_tail, begun_tail + jumps);
		printf("between: %ld %ld drive\n", begun_drive, begun_drive + jumps);
	}
	return 0;
}
