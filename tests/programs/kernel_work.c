/* Work for a kernel whose functions are recorded: kernel_work WHAT NUMBER.
 *
 * ask: system calls; cost: the fewest ticks that so many take; fork: children that end; pipe: words to a child and
 * back; sleep: seconds; urgent: sleeps of a thread that is more urgent than others; hostile: writes, requests and
 * mappings of /dev/nopal from a generator that begins with the number; unprivileged: what a user with this number may do
 * who has CAP_PERFMON, and then no capability. */
#define _GNU_SOURCE
#include "../../runtime/port/linux_kernel/device.h"
#include "hard.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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

static void be_urgent(int times)
{
	struct sched_param urgent = { .sched_priority = 50 };
	CHECK(sched_setscheduler(0, SCHED_FIFO, &urgent) == 0);
	for (int i = 0; i < times; i++)
		usleep(1000);
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
			plan.version = rand() % 8 ? 1 : plan.version;
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
				.version = rand() % 8 ? 1 : rand(),
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

static void have_capabilities(uint64_t set)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };
	for (int half = 0; half < 2; half++)
		data[half].effective = data[half].permitted = (uint32_t)(set >> 32 * half);
	CHECK(syscall(SYS_capset, &header, data) == 0);
}

static const char *told(int result)
{
	return result < 0 ? strerror(errno) : "permitted";
}

static void be_unprivileged(int user)
{
	char state[4096] = "";
	CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(user, user, user) == 0);
	have_capabilities(1ull << CAP_PERFMON);
	int device = open("/dev/nopal", O_RDWR);
	printf("open %s\n", told(device));
	CHECK(device >= 0 && read(device, state, sizeof state - 1) > 0);
	printf("addresses %s\n", strstr(state, "ffffffff") ? "shown" : "hidden");
	struct nopal_device_sites sites = { 0 };
	printf("sites %s\n", told(ioctl(device, NOPAL_DEVICE_SITES, &sites)));
	printf("map %s\n", told(mmap(0, 4096, PROT_READ, MAP_SHARED, device, 0) == MAP_FAILED ? -1 : 0));
	printf("trace %s\n", told(open("/dev/nopal_trace", O_RDONLY)));
	have_capabilities(0);
	printf("open without %s\n", told(open("/dev/nopal", O_RDWR)));
	printf("latency without %s\n", told(open("/dev/nopal_latency", O_RDONLY)));
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(int);
	} works[] = { { "ask", ask },	{ "cost", cost },	   { "fork", fork_often },
		      { "pipe", pipe_often }, { "urgent", be_urgent }, { "hostile", (void (*)(int))be_hostile },
		      { "unprivileged", be_unprivileged } };
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
