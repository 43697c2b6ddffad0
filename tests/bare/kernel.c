/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * A minimal kernel with nopal in it. The first serial line takes commands: those of nopal, and its own, which begin
 * with '!'. The second one is the data file: chunks, one after the other.
 *
 *   !run TIMES     both processors work, with their timers on; prints their results and ticks
 *   !begin TIMES   the second one works over and over
 *   !end           ends that; prints how many rounds it made, and how many had a wrong result
 *   !switch N LINES…  gives the commands of LINES, divided by ';', N times
 *   !text          prints a checksum of the kernel's text
 *   !data          writes the collected chunks to the data file; prints their number
 *   !damage NAME   overwrites a function's site; !mend NAME restores its NOP
 *   !off           ends the machine
 */
#include "kernel.h"

#include "bare.h"

#define LINE_BYTES 512
#define FUNCTIONS 32
#define CONTROL 0x3f8           /* the ports of the serial lines */
#define DATA 0x2f8
#define APIC 0xfee00000ull
#define TIMER_TICKS 200000      /* of the bus's clock, a nanosecond each here */

extern const uint8_t stubs[], trampoline[], trampoline_end[], text_begin[], text_end[];
extern const uint64_t sites[], sites_end[];

/* Each processor has its own stack; the mirrors are nopal's. */
struct {
	_Alignas(4096) uint8_t stack[PROCESSORS][STACK_BYTES];
	uint8_t mirror[PROCESSORS][STACK_BYTES];
} stacks;

/* The state of a processor, which alone writes it, except for `wanted`. */
static struct {
	uint64_t ticks;         /* counted by its interrupt */
	uint64_t wanted;        /* times to work; 0: done, or to stop */
	uint64_t result;
	uint64_t rounds;
	uint64_t wrong;
	uint32_t repeats;
	uint32_t is_there;
} processors[PROCESSORS];

/* Only the first processor uses the following. */
static struct nopal_traced functions[FUNCTIONS];
static uint32_t function_count;
static struct {
	_Alignas(16) uint64_t words[VECTORS][2];
} gates;

/* ---- the machine ---- */

static void out(uint16_t port, uint8_t byte)
{
	__asm__ volatile("outb %0, %1" : : "a"(byte), "Nd"(port));
}

static uint8_t in(uint16_t port)
{
	uint8_t byte;
	__asm__ volatile("inb %1, %0" : "=a"(byte) : "Nd"(port));
	return byte;
}

static void write_to(uint16_t line, const void *bytes, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++) {
		while (!(in(line + 5) & 0x20))
			;
		out(line, ((const uint8_t *)bytes)[i]);
	}
}

static void say(const char *text, uint32_t length)
{
	write_to(CONTROL, text, length);
}

static void send(const void *bytes, uint32_t length)
{
	write_to(DATA, bytes, length);
}

static void say_text(const char *text)
{
	nopal_traces_say(&nopal_bare_traces, text);
}

static void say_number(uint64_t number)
{
	nopal_traces_say_number(&nopal_bare_traces, number, 10, " ");
}

static volatile uint32_t *apic(uint32_t offset)
{
	return (volatile uint32_t *)(APIC + offset);
}

static void apic_begin(void)
{
	*apic(0xf0) = 0x100 | VECTOR_SPURIOUS;
	*apic(0x3e0) = 0xb;             /* the timer divides by 1 */
	*apic(0x320) = 1 << 17 | VECTOR_TIMER;
}

static void timer(uint32_t ticks)
{
	*apic(0x380) = ticks;
}

static void to_others(uint32_t what)
{
	while (*apic(0x300) & 1 << 12)
		;
	*apic(0x300) = 3 << 18 | what;
}

static void interrupt_others(void)
{
	to_others(1 << 14 | VECTOR_INTERRUPTED);
}

static uint64_t ticks_now(void)
{
	uint32_t low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

static void pause_for(uint64_t ticks)
{
	for (uint64_t begin = ticks_now(); ticks_now() - begin < ticks;)
		__builtin_ia32_pause();
}

static void off(void)
{
	out(0x64, 0xfe);
	for (;;)
		__asm__ volatile("cli; hlt");
}

static void gates_begin(void)
{
	struct __attribute__((packed)) {
		uint16_t limit;
		uint64_t base;
	} pointer = { sizeof gates - 1, (uint64_t)&gates };
	for (uint64_t i = 0; i < VECTORS; i++) {
		uint64_t stub = (uint64_t)stubs + 16 * i;
		gates.words[i][0] = (stub & 0xffff) | 0x10 << 16 | 0x8e00ull << 32 | stub >> 16 << 48;
		gates.words[i][1] = stub >> 32;
	}
	__asm__ volatile("lidt %0" : : "m"(pointer));
}

/* ---- interrupts ---- */

struct frame {
	uint64_t registers[15];
	uint64_t vector;
	uint64_t error;
	uint64_t address;
};

static uint32_t here(void)
{
	return *apic(0x20) >> 24;
}

void kernel_interrupt(struct frame *frame);
void kernel_interrupt(struct frame *frame)
{
	if (frame->vector == VECTOR_TIMER) {
		tick(&processors[here()].ticks);
	} else if (frame->vector == VECTOR_INTERRUPTED) {
		nopal_bare_interrupted();
	} else if (frame->vector != 3 || !nopal_bare_breakpoint(&frame->address)) {
		say_text("exception ");
		say_number(frame->vector);
		nopal_traces_say_number(&nopal_bare_traces, frame->address, 16, "\n");
		off();
	}
	if (frame->vector >= VECTOR_TIMER)
		*apic(0xb0) = 0;
}

/* ---- work ---- */

static void work_here(uint32_t processor, uint64_t times)
{
	timer(TIMER_TICKS);
	processors[processor].result = work(processor, times);
	timer(0);
	nopal_bare_rest();
}

static void work_for_ever(uint32_t processor)
{
	for (;;) {
		/* Acquire and release pair with those of the first processor, which sees the results. */
		uint64_t times = __atomic_load_n(&processors[processor].wanted, __ATOMIC_ACQUIRE), first = 0;
		if (!times) {
			__builtin_ia32_pause();
			continue;
		}
		do {
			work_here(processor, times);
			first = first ? first : processors[processor].result;
			processors[processor].rounds++;
			processors[processor].wrong += processors[processor].result != first;
		} while (__atomic_load_n(&processors[processor].repeats, __ATOMIC_ACQUIRE));
		__atomic_store_n(&processors[processor].wanted, 0, __ATOMIC_RELEASE);
	}
}

static void begin_second(uint64_t times, uint32_t repeats)
{
	processors[1].rounds = processors[1].wrong = 0;
	processors[1].repeats = repeats;
	__atomic_store_n(&processors[1].wanted, times, __ATOMIC_RELEASE);
}

static void wait_for_second(void)
{
	__atomic_store_n(&processors[1].repeats, 0, __ATOMIC_RELEASE);
	while (__atomic_load_n(&processors[1].wanted, __ATOMIC_ACQUIRE))
		__builtin_ia32_pause();
}

static void run(uint64_t times)
{
	uint64_t before[PROCESSORS];
	for (uint32_t i = 0; i < PROCESSORS; i++)
		before[i] = processors[i].ticks;
	begin_second(times, 0);
	work_here(0, times);
	wait_for_second();
	for (uint32_t i = 0; i < PROCESSORS; i++) {
		say_number(processors[i].result);
		say_number(processors[i].ticks - before[i]);
	}
	say_text("ran\n");
}

/* ---- the text ---- */

static void sum_text(void)
{
	uint64_t sum = 0xcbf29ce484222325;
	for (const uint8_t *byte = text_begin; byte < text_end; byte++)
		sum = (sum ^ *byte) * 0x100000001b3;
	say_number(sum);
	say_text("text\n");
}

static int same(const char *one, const char *other)
{
	while (*one && *one == *other) {
		one++;
		other++;
	}
	return *one == *other;
}

static void damage(const char *name, uint8_t byte)
{
	for (uint32_t i = 0; i < function_count; i++)
		if (same(functions[i].name, name))
			*((volatile uint8_t *)functions[i].site + 4) = byte;
	say_text("done\n");
}

/* ---- names: from the kernel's own file, which QEMU passes as its initial disk ---- */

struct start_info {
	uint32_t magic, version, flags, module_count;
	uint64_t modules;
};

struct section {
	uint32_t name, type;
	uint64_t flags, address, offset, bytes;
	uint32_t link, info;
	uint64_t align, entry_bytes;
};

struct symbol {
	uint32_t name;
	uint8_t info, other;
	uint16_t section;
	uint64_t address, bytes;
};

static const struct symbol *symbol_at(const uint8_t *file, uint64_t address, const char **name)
{
	const struct section *sections = (const struct section *)(file + *(const uint64_t *)(file + 40));
	for (uint32_t i = 0; i < *(const uint16_t *)(file + 60); i++) {
		const struct symbol *symbols = (const struct symbol *)(file + sections[i].offset);
		for (uint64_t n = 0; sections[i].type == 2 && n < sections[i].bytes / sizeof *symbols; n++)
			if ((symbols[n].info & 15) == 2 && address - symbols[n].address < symbols[n].bytes) {
				*name = (const char *)(file + sections[sections[i].link].offset + symbols[n].name);
				return &symbols[n];
			}
	}
	return 0;
}

static void functions_begin(const struct start_info *info)
{
	const uint8_t *file = info->module_count ? *(const uint8_t *const *)info->modules : 0;
	for (const uint64_t *site = sites; site < sites_end && function_count < FUNCTIONS; site++) {
		const char *name = "";
		const struct symbol *symbol = file ? symbol_at(file, *site, &name) : 0;
		functions[function_count++] = (struct nopal_traced){
			.name = name,
			.address = symbol ? symbol->address : *site,
			.site = *site,
		};
	}
}

/* ---- commands ---- */

static uint64_t number_in(const char **text)
{
	uint64_t number = 0;
	for (; **text >= '0' && **text <= '9'; ++*text)
		number = number * 10 + (uint64_t)(**text - '0');
	*text += **text == ' ';
	return number;
}

static void give(const char *lines)
{
	while (*lines) {
		uint32_t length = 0;
		while (lines[length] && lines[length] != ';')
			length++;
		nopal_traces_command(&nopal_bare_traces, lines, length);
		lines += length + (lines[length] == ';');
	}
}

/* Gives the commands while the timer interrupts both processors. */
static void give_often(const char *rest)
{
	uint64_t times = number_in(&rest);
	timer(TIMER_TICKS);
	for (uint64_t i = 0; i < times; i++) {
		give(rest);
		pause_for(300000);
		nopal_bare_rest();
		nopal_bare_collect();
	}
	timer(0);
	say_text("switched\n");
}

static const char *behind(const char *line, const char *word)
{
	for (; *word; word++)
		if (*line++ != *word)
			return 0;
	return line;
}

static void obey(const char *line)
{
	const char *rest;
	if ((rest = behind(line, "run "))) {
		run(number_in(&rest));
	} else if ((rest = behind(line, "begin "))) {
		begin_second(number_in(&rest), 1);
		say_text("begun\n");
	} else if (behind(line, "end")) {
		wait_for_second();
		say_number(processors[1].rounds);
		say_number(processors[1].wrong);
		say_text("ended\n");
	} else if ((rest = behind(line, "switch "))) {
		give_often(rest);
	} else if (behind(line, "text")) {
		sum_text();
	} else if (behind(line, "data")) {
		nopal_bare_rest();
		say_number(nopal_bare_collect());
		say_text("sent\n");
	} else if ((rest = behind(line, "damage "))) {
		damage(rest, 0x90);
	} else if ((rest = behind(line, "mend "))) {
		damage(rest, 0);
	} else if (behind(line, "off")) {
		off();
	} else {
		say_text("what?\n");
	}
}

static void serve(void)
{
	char line[LINE_BYTES];
	uint32_t length = 0;
	for (;;) {
		while (!(in(CONTROL + 5) & 1))
			__builtin_ia32_pause();
		char letter = (char)in(CONTROL);
		if (letter != '\n') {
			line[length] = letter;
			length += length < LINE_BYTES - 1;
			continue;
		}
		line[length] = 0;
		if (line[0] == '!')
			obey(line + 1);
		else
			nopal_traces_command(&nopal_bare_traces, line, length);
		length = 0;
	}
}

/* ---- the begin ---- */

_Noreturn void kernel_begin(uint32_t processor, const struct start_info *info);
_Noreturn void kernel_begin(uint32_t processor, const struct start_info *info)
{
	if (!processor) {
		/* Masks the old controller's interrupts. */
		out(0x21, 0xff);
		out(0xa1, 0xff);
		functions_begin(info);
		nopal_bare_begin(&(struct nopal_bare){
			.functions = functions,
			.function_count = function_count,
			.processors = PROCESSORS,
			.mirror = sizeof stacks.stack,
			.interrupt_others = interrupt_others,
			.say = say,
			.send = send,
		});
	}
	gates_begin();
	nopal_bare_join(processor, (uint64_t)stacks.stack[processor], STACK_BYTES);
	apic_begin();
	__asm__ volatile("sti");
	__atomic_store_n(&processors[processor].is_there, 1, __ATOMIC_RELEASE);
	if (processor)
		work_for_ever(processor);
	__builtin_memcpy((void *)TRAMPOLINE, trampoline, (size_t)(trampoline_end - trampoline));
	to_others(0x4500);              /* INIT, then startup interrupts */
	pause_for(10000000);
	for (int i = 0; i < 2 && !__atomic_load_n(&processors[1].is_there, __ATOMIC_ACQUIRE); i++) {
		to_others(0x4600 | TRAMPOLINE >> 12);
		pause_for(1000000);
	}
	while (!__atomic_load_n(&processors[1].is_there, __ATOMIC_ACQUIRE))
		__builtin_ia32_pause();
	say_text("ready\n");
	serve();
	for (;;)
		;
}
