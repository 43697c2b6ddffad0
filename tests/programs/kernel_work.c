/* Work for a kernel whose functions are recorded: kernel_work WHAT NUMBER.
 *
 * ask: system calls; until: the same, and then none until a signal ends it; count: how many of them perf's probes
 * see; cost: the fewest ticks that so many take; fork: children that end; pipe: words to a child and back; sleep:
 * seconds; urgent: waits of a task that is more urgent than all others; fault: first reads of so many pages;
 * unfinished: a chunk of this processor, full, with a record that is never stored; hostile: random writes, requests
 * and mappings of /dev/nopal, with the number as seed; meddle: two threads that do so with all devices, and read,
 * seek, close and open them; unprivileged: the rights of a user with this number, with CAP_SYS_ADMIN, with
 * CAP_PERFMON, and then without. */
#define _GNU_SOURCE
#include "../../runtime/core/abi.h"
#include "../../runtime/port/linux_kernel/device.h"
#include "hard.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

KEPT static void ask(int times)
{
	for (int i = 0; i < times; i++)
		syscall(SYS_getppid);
	EFFECT();
}

static volatile sig_atomic_t has_ended;

static void end(int signal)
{
	has_ended = 1;
}

/* Its processor is not idle. */
static void ask_until(int times)
{
	signal(SIGTERM, end);
	ask(times);
	while (!has_ended)
		;
}

/* A perf probe at a function of the kernel; at its returns, if `config` is 1. */
static int counter_of(int config)
{
	int type, counter;
	FILE *file = fopen("/sys/bus/event_source/devices/kprobe/type", "r");
	CHECK(file && fscanf(file, "%d", &type) == 1);
	fclose(file);
	struct perf_event_attr attributes = {
		.type = type,
		.size = sizeof attributes,
		.config = config,
		.kprobe_func = (uintptr_t)"__do_sys_getppid",
	};
	counter = syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
	CHECK(counter >= 0);
	return counter;
}

static void count_by_perf(int times)
{
	int entries = counter_of(0), returns = counter_of(1);
	uint64_t counted[2];
	ask(times);
	CHECK(read(entries, &counted[0], 8) == 8 && read(returns, &counted[1], 8) == 8);
	printf("%lu %lu\n", counted[0], counted[1]);
}

static void cost(int times)
{
	uint64_t least = UINT64_MAX;
	for (int run = 0; run < 50; run++) {
		uint64_t begin = __rdtsc();
		ask(times);
		uint64_t ticks = __rdtsc() - begin;
		if (ticks < least)
			least = ticks;
	}
	printf("%lu\n", least);
}

static void fork_often(int times)
{
	for (int i = 0; i < times; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			_exit(i % 128);
		int status;
		CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == i % 128);
	}
}

static void pipe_often(int times)
{
	int to[2], back[2];
	CHECK(pipe(to) == 0 && pipe(back) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	for (int i = 0, got; i < times; i++) {
		if (child == 0) {
			CHECK(read(to[0], &got, sizeof got) == sizeof got && write(back[1], &got, sizeof got) == sizeof got);
			continue;
		}
		CHECK(write(to[1], &i, sizeof i) == sizeof i && read(back[0], &got, sizeof got) == sizeof got);
		CHECK(got == i);
	}
	if (child == 0)
		_exit(0);
	CHECK(waitpid(child, NULL, 0) == child);
}

static long waits_of(pid_t process)
{
	char name[64], line[256];
	long waits = -1;
	snprintf(name, sizeof name, "/proc/%d/status", process);
	FILE *file = fopen(name, "r");
	CHECK(file);
	while (fgets(line, sizeof line, file))
		sscanf(line, "voluntary_ctxt_switches: %ld", &waits);
	fclose(file);
	CHECK(waits >= 0);
	return waits;
}

/* A task with a deadline is more urgent than all others. It is woken only after it has left its processor, since
 * otherwise it would not wait for one. A read of an eventfd waits for nothing else. */
static void be_urgent(int times)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} urgent = { .size = sizeof urgent, .policy = SCHED_DEADLINE, .runtime = 500000000, .deadline = 1000000000, .period = 1000000000 };
	_Atomic long *before = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int wakes = eventfd(0, 0);
	CHECK(before != MAP_FAILED && wakes >= 0);
	*before = -1;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(syscall(SYS_sched_setattr, 0, &urgent, 0) == 0);
		struct rusage used;
		CHECK(getrusage(RUSAGE_SELF, &used) == 0);
		*before = used.ru_nvcsw;
		eventfd_t value;
		for (int i = 0; i < times; i++)
			CHECK(eventfd_read(wakes, &value) == 0 && value == 1);
		_exit(0);
	}
	while (*before < 0)
		usleep(1000);
	for (int i = 1; i <= times; i++) {
		while (waits_of(child) < *before + i)
			usleep(1000);
		CHECK(eventfd_write(wakes, 1) == 0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static const char *const words[] = { "trace", "new", "on", "off", "remove", "watch", "children", "start", "stop", "tracer", "wakeup",
				     "irqsoff", "reset", "threshold", "query", "testtracein", "arguments", "size", "probe", "p1",
				     "20", "vfs_*", "*", "0", "1", "-1", "18446744073709551616", "0xffffffff81000000", "a", "@", "%s%n", "[", "" };

static uint64_t begin_of_text(void)
{
	FILE *symbols = fopen("/proc/kallsyms", "r");
	uint64_t address = 0;
	char name[256] = "";
	CHECK(symbols);
	while (strcmp(name, "_text") && fscanf(symbols, "%lx %*c %255s%*[^\n]", &address, name) == 2)
		;
	fclose(symbols);
	return address;
}

static void be_hostile(unsigned int seed)
{
	srand(seed);
	int device = open("/dev/nopal", O_RDWR);
	CHECK(device >= 0);
	static char text[8192];
	static uint64_t table[512];
	uint64_t begin = begin_of_text();
	for (int round = 0; round < 3000; round++) {
		size_t length = 0;
		switch (rand() % 5) {
		case 0:
			for (int i = rand() % 6; i >= 0; i--)
				length += snprintf(text + length, sizeof text - length, "%s%c", words[rand() % (sizeof words / sizeof *words)],
						   rand() % 8 ? ' ' : '\n');
			break;
		case 1:
			for (size_t wanted = rand() % sizeof text; length < wanted; length++)
				text[length] = rand();
			break;
		case 2:
			for (int i = 0; i < 512; i++)
				table[i] = rand() % 3 ? rand() : 0xffffffff81000000 + rand() % 0x2000000;
			struct nopal_device_plan plan;
			for (size_t i = 0; i < sizeof plan; i++)
				((char *)&plan)[i] = rand() % 4 ? 0 : rand();
			struct nopal_device_modules modules;
			CHECK(ioctl(device, NOPAL_DEVICE_MODULES, &modules) == 0);
			plan.version = rand() % 8 ? NOPAL_DEVICE_VERSION : plan.version;
			plan.modules = rand() % 8 ? modules.come : plan.modules;
			plan.functions = rand() % 8 ? (uint64_t)table : plan.functions;
			plan.exits = rand() % 8 ? (uint64_t)table : plan.exits;
			plan.verdicts = rand() % 8 ? (uint64_t)text : plan.verdicts;
			ioctl(device, rand() % 8 ? NOPAL_DEVICE_PLAN : (unsigned int)rand(), rand() % 16 ? (uint64_t)&plan : (uint64_t)rand());
			break;
		case 3:;
			size_t bytes = (size_t)rand() % 64 << 12;
			void *map = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device, (off_t)(rand() % 2 ? 0 : rand() % 64) << 12);
			if (map != MAP_FAILED)
				munmap(map, bytes);
			break;
		case 4:
			for (int i = 0; i < 512; i++)
				table[i] = rand() % 4 ? (uint64_t)rand() % 0x10000 : 0xffffffff81000000 + rand() % 0x2000000;
			char command[64];
			snprintf(command, sizeof command, rand() % 8 ? "probe x new p%d fetch $di" : "probe p%d on", rand() % 32);
			struct nopal_device_probe probe = {
				.version = rand() % 8 ? NOPAL_DEVICE_VERSION : rand(),
				.count = rand() % 16,
				.fetches = rand() % 8 ? (uint64_t)table : (uint64_t)rand(),
				.address = begin + rand() % 0x1000000,
				.text = rand() % 8 ? (uint64_t)command : (uint64_t)rand(),
			};
			ioctl(device, NOPAL_DEVICE_PROBE, &probe);
			length = snprintf(text, sizeof text, "probe p%d %s\n", rand() % 32, rand() % 3 ? "on" : "remove");
			break;
		}
		if (length)
			(void)!write(device, text, length);
	}
	close(device);
}

/* Leaves the oldest chunk of the buffer full, as if its first record's writer had been interrupted for ever. */
static void leave_unfinished(int processor)
{
	int device = open("/dev/nopal", O_RDWR);
	const size_t header = sizeof(struct nopal_region);
	struct nopal_region *region = mmap(0, header, PROT_READ, MAP_SHARED, device, 0);
	CHECK(region != MAP_FAILED);
	const uint32_t last = region->chunk_count - 1;
	const uint64_t at = region->chunk_offset + (uint64_t)last * NOPAL_CHUNK_BYTES, states = region->state_offset;
	CHECK(munmap(region, header) == 0);
	char *all = mmap(0, at + NOPAL_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0);
	CHECK(all != MAP_FAILED);
	struct nopal_chunk_header *chunk = (struct nopal_chunk_header *)(all + at);
	chunk->clock_begin = 1;
	chunk->content_bits = 8 * NOPAL_CHUNK_BYTES;
	chunk->thread_begin = 1 << 16 | (uint16_t)processor;
	uint32_t free = NOPAL_CHUNK_FREE;
	CHECK(atomic_compare_exchange_strong((_Atomic uint32_t *)(all + states) + last, &free, NOPAL_CHUNK_FULL));
	close(device);
}

/* Each reads the page of zeroes, so the kernel allocates nothing. */
static void fault_often(int pages)
{
	size_t page = 4096;
	volatile char *all = mmap(0, pages * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(all != MAP_FAILED);
	madvise((void *)all, pages * page, MADV_NOHUGEPAGE);
	for (int i = 0; i < pages; i++)
		(void)all[i * page];
}

/* Two threads share the open files. */
static _Atomic int files[3];

static void open_again(int which)
{
	static const char *const names[] = { "/dev/nopal", "/dev/nopal_trace", "/dev/nopal_latency" };
	int before = atomic_exchange(&files[which], open(names[which], which == 1 ? O_RDONLY : O_RDWR));
	if (before > 0)
		close(before);
}

static void *meddle_once(void *argument)
{
	static const char *const texts[] = { "verbose\n", "noverbose", "symonly", " nosymonly ", "trace vfs_read new r\ntrace r on\n",
					     "processors 1 0\nprocessors 63\n", "arguments on\nreset\n", "histogram", "nohistogram",
					     "tracer events on\ntracer events off\n" };
	static _Thread_local char bytes[80000];
	unsigned int seed = (uintptr_t)argument;
	for (int round = 0; round < 1000; round++) {
		int which = rand_r(&seed) % 3, file = files[which];
		size_t length = rand_r(&seed) % (rand_r(&seed) % 4 ? 200 : sizeof bytes);
		off_t at = rand_r(&seed) % 4 ? rand_r(&seed) % 10000 : (off_t)rand_r(&seed) << 32;
		unsigned int request = rand_r(&seed);
		switch (rand_r(&seed) % 7) {
		case 0:
			(void)!read(file, rand_r(&seed) % 8 ? bytes : (void *)at, length);
			break;
		case 1:
			(void)!pread(file, bytes, length, at);
			break;
		case 2:;
			const char *text = texts[request % (sizeof texts / sizeof *texts)];
			(void)!write(file, text, strlen(text));
			break;
		case 3:
			for (size_t i = 0; i < length; i++)
				bytes[i] = rand_r(&seed);
			(void)!write(file, bytes, length);
			break;
		case 4:
			lseek(file, at, request % 5);
			break;
		case 5:;
			void *map = mmap(0, length + 1, request % 8, request % 4 ? MAP_SHARED : MAP_PRIVATE, file,
					 rand_r(&seed) % 4 ? 0 : at & ~0xfffll);
			if (map != MAP_FAILED)
				munmap(map, length + 1);
			unsigned int requests[] = { NOPAL_DEVICE_PLAN, NOPAL_DEVICE_SITES, NOPAL_DEVICE_VERDICTS, NOPAL_DEVICE_MARKERS,
						    NOPAL_DEVICE_PROBE };
			ioctl(file, request % 2 ? requests[request / 2 % (sizeof requests / sizeof *requests)] : request,
			      request % 3 ? bytes : (void *)at);
			break;
		case 6:
			open_again(which);
			break;
		}
	}
	return 0;
}

static void meddle(int seed)
{
	pthread_t other;
	for (int which = 0; which < 3; which++)
		open_again(which);
	CHECK(pthread_create(&other, 0, meddle_once, (void *)(uintptr_t)(seed + 1u)) == 0);
	meddle_once((void *)(uintptr_t)(unsigned int)seed);
	CHECK(pthread_join(other, 0) == 0);
}

static void have_capabilities(uint64_t effective, uint64_t permitted)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };
	for (int half = 0; half < 2; half++) {
		data[half].effective = (uint32_t)(effective >> 32 * half);
		data[half].permitted = (uint32_t)(permitted >> 32 * half);
	}
	CHECK(syscall(SYS_capset, &header, data) == 0);
}

static const char *outcome(int result)
{
	return result < 0 ? strerror(errno) : "permitted";
}

static void be_unprivileged(int user)
{
	char state[4096] = "";
	CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(user, user, user) == 0);
	const uint64_t admin = 1ull << CAP_SYS_ADMIN, perfmon = 1ull << CAP_PERFMON;
	have_capabilities(admin, admin | perfmon);
	printf("open by CAP_SYS_ADMIN %s\n", outcome(open("/dev/nopal", O_RDWR)));
	have_capabilities(perfmon, perfmon);
	int device = open("/dev/nopal", O_RDWR);
	printf("open %s\n", outcome(device));
	CHECK(device >= 0 && read(device, state, sizeof state - 1) > 0);
	printf("addresses %s\n", strstr(state, "ffffffff") ? "shown" : "hidden");
	struct nopal_device_sites sites = { 0 };
	printf("sites %s\n", outcome(ioctl(device, NOPAL_DEVICE_SITES, &sites)));
	struct nopal_device_verdicts verdicts = { 0 };
	printf("verdicts %s\n", outcome(ioctl(device, NOPAL_DEVICE_VERDICTS, &verdicts)));
	printf("map %s\n", outcome(mmap(0, 4096, PROT_READ, MAP_SHARED, device, 0) == MAP_FAILED ? -1 : 0));
	printf("trace %s\n", outcome(open("/dev/nopal_trace", O_RDONLY)));
	have_capabilities(0, 0);
	printf("open without %s\n", outcome(open("/dev/nopal", O_RDWR)));
	printf("latency without %s\n", outcome(open("/dev/nopal_latency", O_RDONLY)));
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(int);
	} works[] = { { "ask", ask },	{ "until", ask_until }, { "count", count_by_perf }, { "cost", cost },	     { "fork", fork_often },
		      { "pipe", pipe_often }, { "urgent", be_urgent }, { "fault", fault_often }, { "hostile", (void (*)(int))be_hostile },
		      { "meddle", meddle },	{ "unprivileged", be_unprivileged }, { "unfinished", leave_unfinished } };
	CHECK(count == 3);
	int number = atoi(arguments[2]);
	if (!strcmp(arguments[1], "sleep"))
		return sleep(number) ? 1 : 0;
	for (size_t i = 0; i < sizeof works / sizeof *works; i++)
		if (!strcmp(works[i].name, arguments[1])) {
			works[i].run(number);
			return 0;
		}
	return 2;
}
