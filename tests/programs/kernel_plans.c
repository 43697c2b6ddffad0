/* Plans for nopal's module, of one function with one exit each. Prints a line for each kind: the number of plans, the
 * number of functions that the module then traces, and the number that it refuses because of the exit's target.
 *
 * tails: a jump to the begin of a function; returns: the same, declared a return; registers: a jump to the thunk that
 * goes on to the address in r11, of nopal_leaves.ko and wherever else these bytes are, declared a tail jump; the kernel
 * keeps such jumps on processors that need them. */
#include "../../runtime/port/linux_kernel/device.h"
#include "hard.h"
#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct symbol {
	uint64_t address;
	char name[64];
};

static struct symbol symbols[262144];
static size_t symbol_count;

static int in_order(const void *a, const void *b)
{
	const struct symbol *left = a, *right = b;
	return (left->address > right->address) - (left->address < right->address);
}

/* The functions of the kernel, in order. */
static void read_symbols(void)
{
	char line[1024], kind;
	FILE *file = fopen("/proc/kallsyms", "r");
	CHECK(file);
	while (fgets(line, sizeof line, file)) {
		CHECK(symbol_count < sizeof symbols / sizeof *symbols);
		struct symbol *it = &symbols[symbol_count];
		symbol_count += sscanf(line, "%lx %c %63s", &it->address, &kind, it->name) == 3 &&
				strchr("tT", kind);
	}
	fclose(file);
	qsort(symbols, symbol_count, sizeof *symbols, in_order);
}

static uint64_t address_of(const char *name)
{
	for (size_t i = 0; i < symbol_count; i++)
		if (!strcmp(symbols[i].name, name))
			return symbols[i].address;
	fprintf(stderr, "the kernel has no %s\n", name);
	exit(1);
}

/* The last symbol at or before this address. */
static const struct symbol *symbol_at(uint64_t address)
{
	size_t low = 0, high = symbol_count;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		if (symbols[middle].address <= address)
			low = middle;
		else
			high = middle;
	}
	return &symbols[low];
}

static unsigned char *read_text(uint64_t first, uint64_t end)
{
	unsigned char *text = malloc(end - first);
	int core = open("/proc/kcore", O_RDONLY);
	Elf64_Ehdr header;
	CHECK(text && core >= 0 && pread(core, &header, sizeof header, 0) == sizeof header);
	for (unsigned int i = 0; i < header.e_phnum; i++) {
		Elf64_Phdr part;
		CHECK(pread(core, &part, sizeof part, (off_t)(header.e_phoff + i * sizeof part)) == sizeof part);
		if (part.p_type != PT_LOAD || part.p_vaddr > first || part.p_vaddr + part.p_filesz < end)
			continue;
		for (uint64_t at = first; at < end;) {
			ssize_t got = pread(core, text + (at - first), end - at, (off_t)(part.p_offset + at - part.p_vaddr));
			CHECK(got > 0);
			at += (uint64_t)got;
		}
		close(core);
		return text;
	}
	CHECK(0);
	return 0;
}

enum kind { TAILS, RETURNS, REGISTERS, KINDS };

static int device;
static int made[KINDS], traced[KINDS], elsewhere[KINDS];

static void plan(enum kind kind, const struct symbol *function, struct nopal_device_exit left)
{
	uint8_t verdict = 0xff;
	struct nopal_device_function planned = { .address = function->address, .end = left.address + 5, .exits = 1 };
	struct nopal_device_modules modules;
	CHECK(ioctl(device, NOPAL_DEVICE_MODULES, &modules) == 0);
	struct nopal_device_plan plan = {
		.version = NOPAL_DEVICE_VERSION,
		.modules = modules.come,
		.function_count = 1,
		.exit_count = 1,
		.functions = (uintptr_t)&planned,
		.exits = (uintptr_t)&left,
		.verdicts = (uintptr_t)&verdict,
	};
	CHECK(ioctl(device, NOPAL_DEVICE_PLAN, &plan) == 0);
	made[kind]++;
	traced[kind] += verdict == NOPAL_VERDICT_TRACED;
	elsewhere[kind] += verdict == NOPAL_VERDICT_TARGET;
}

/* Plans each jump between these addresses to the begin of a function, until so many functions are traced. */
static void plan_jumps(uint64_t first, uint64_t end, int most)
{
	unsigned char *text = read_text(first, end);
	for (uint64_t at = first; at + 5 <= end; at++) {
		int32_t distance;
		if (text[at - first] != 0xe9)
			continue;
		memcpy(&distance, text + (at + 1 - first), sizeof distance);
		uint64_t target = at + 5 + (uint64_t)(int64_t)distance;
		const struct symbol *of = symbol_at(at), *to = symbol_at(target);
		if (to->address != target)
			continue;
		struct nopal_device_exit exit = { .address = at, .target = target, .kind = NOPAL_EXIT_TAIL };
		memcpy(exit.expected, text + (at - first), sizeof exit.expected);
		if (!strcmp(to->name, "__x86_indirect_thunk_r11")) {
			plan(REGISTERS, of, exit);
		} else if (!strstr(to->name, "thunk") && traced[TAILS] < most) {
			exit.kind = NOPAL_EXIT_RETURN;
			plan(RETURNS, of, exit);
			exit.kind = NOPAL_EXIT_TAIL;
			plan(TAILS, of, exit);
		}
	}
	free(text);
}

int main(void)
{
	read_symbols();
	device = open("/dev/nopal", O_RDWR);
	CHECK(device >= 0);
	plan_jumps(address_of("_stext"), address_of("_etext"), 100);
	uint64_t through_r11 = address_of("nopal_leaves_through_r11");
	plan_jumps(through_r11, through_r11 + 32, 0);
	static const char *const names[KINDS] = { "tails", "returns", "registers" };
	for (int kind = 0; kind < KINDS; kind++)
		printf("%s %d %d %d\n", names[kind], made[kind], traced[kind], elsewhere[kind]);
	return 0;
}
