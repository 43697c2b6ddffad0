// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Instructions that begin and end sections with interrupts or preemption off, found in the running text: each becomes a
 * call of a thunk (section.S) while a tracer is on.
 *
 *   fa 0f 1f 44 00 00          cli, as the kernel has patched it      2e e8 REL
 *   fb 0f 1f 44 00 00          sti                                    2e e8 REL
 *   65 ff 05 REL               incl %gs:COUNT(%rip)                   2e 2e e8 REL
 *   65 ff 0d REL               decl                                   2e 2e e8 REL
 *   65 83 05 REL NN            addl, of a byte                        2e 2e 2e e8 REL
 *   65 81 05 REL NN NN NN NN   addl, of four                          2e 2e 2e 2e 2e 2e e8 REL
 *   65 48 ...                  incq and so on, where the count is that wide: one 2e more
 *
 * A prefix 2e has no effect before a call, so the call is one instruction that ends where the old one ended: a task
 * that is interrupted at a site, or returns to it, finds an instruction there before and after each change. A task that
 * stands behind the fb finds the e8.
 */
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/kallsyms.h>
#include <linux/rcupdate.h>
#include <linux/sort.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include "arch.h"
#include "kernels.h"
#include "module.h"
#include "section.h"
#include <trace/events/power.h>

#define SITES_AT_MOST 65536
#define UNSEEN_SHOWN 64
#define CALL_BYTES 5

/* The kinds of sites, in the order of the thunks, and the ends of interrupts. */
enum { KIND_CLI, KIND_STI, KIND_AMOUNTS };
static const int32_t amounts[] = { NOPAL_SECTION_AMOUNTS };
#define KINDS (KIND_AMOUNTS + 2 * ARRAY_SIZE(amounts))
#define KIND_EXIT KINDS
#define KIND_NONE -1
#define KIND_UNKNOWN -2     /* it changes the count in a way that has no thunk */

/* Why a site is left as it is. */
enum unseen { UNSEEN_NEVER, UNSEEN_HELD, UNSEEN_FORM, UNSEEN_TO_USER, UNSEEN_KINDS };
static const char *const unseen_words[] = {
	[UNSEEN_NEVER] = "in text that must not be interrupted",
	[UNSEEN_HELD] = "changed by somebody else",
	[UNSEEN_FORM] = "of another form",
	[UNSEEN_TO_USER] = "on the way to a program",
};

struct unseen_site {
	unsigned long address;
	enum unseen why;
};

/* All of these under nopal_lock. In order of their addresses; while a tracer is on, those that restore the text. */
static struct nopal_change *changes;
static struct unseen_site *unseen;
static uint32_t change_count, unseen_count;
static uint32_t unkept[UNSEEN_KINDS];   /* unseen sites for which there is no room */
static enum nopal_mode mode;
static bool on;

DEFINE_PER_CPU_ALIGNED(struct nopal_section, nopal_section);

/* ---- lengths of instructions ---- */

/* The parts after an opcode: ModRM, and so many bytes of an immediate. `u`: the kernel's decoder is asked. */
enum { u = 0, n = 0x10, m = 0x20, p = 0x40, b = n | 1, z = n | 4, B = m | 1, Z = m | 4, IMMEDIATE = 0xf };
static const uint8_t one_byte[256] = {
	m, m, m, m, b, z, u, u, m, m, m, m, b, z, u, u,         /* 0f: below */
	m, m, m, m, b, z, u, u, m, m, m, m, b, z, u, u,
	m, m, m, m, b, z, p, u, m, m, m, m, b, z, p, u,
	m, m, m, m, b, z, p, u, m, m, m, m, b, z, p, u,
	p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p,         /* REX */
	n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n,
	u, u, u, m, p, p, p, u, z, Z, b, B, n, n, n, n,
	b, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b,
	B, Z, u, B, m, m, m, m, m, m, m, m, m, m, m, u,
	n, n, n, n, n, n, n, n, n, n, u, n, n, n, n, n,
	u, u, u, u, n, n, n, n, b, z, n, n, n, n, n, n,
	b, b, b, b, b, b, b, b, z, z, z, z, z, z, z, z,         /* the last eight: 8 bytes with REX.W */
	B, B, u, n, u, u, B, Z, u, n, u, u, n, b, u, n,
	m, m, m, m, u, u, u, n, u, u, u, u, u, u, u, u,
	b, b, b, b, b, b, b, b, z, z, u, b, n, n, n, n,
	p, u, p, p, n, n, u, u, n, n, n, n, n, n, m, m,
};
/* Opcodes behind 0f. */
static const uint8_t two_bytes[256] = {
	[0x05] = n, [0x0b] = n, [0x0d] = m, [0x18 ... 0x1f] = m, [0x30 ... 0x32] = n, [0x40 ... 0x4f] = m, [0x80 ... 0x8f] = z,
	[0x90 ... 0x9f] = m, [0xa2] = n, [0xa3] = m, [0xa4] = B, [0xa5] = m, [0xab] = m, [0xac] = B, [0xad ... 0xaf] = m,
	[0xb0 ... 0xb1] = m, [0xb3] = m, [0xb6 ... 0xb7] = m, [0xba] = B, [0xbb ... 0xbf] = m, [0xc0 ... 0xc1] = m, [0xc7] = m,
	[0xc8 ... 0xcf] = n,
};

/* The length of an instruction of the common kinds; 0: of another kind. Reads at most 15 bytes. */
static int common_length(const uint8_t *bytes)
{
	const uint8_t *at = bytes;
	bool is_short = false;
	for (; one_byte[*at] == p && at - bytes < 4; at++)
		is_short |= *at == 0x66;
	bool is_wide = at > bytes && (at[-1] & 0xf8) == 0x48;
	uint8_t form = *at == 0x0f ? two_bytes[*++at] : one_byte[*at];
	if (form == u || form == p || ((form & IMMEDIATE) == 4 && (is_short || (is_wide && (*at & 0xf8) == 0xb8))))
		return 0;
	int length = at + 1 - bytes + (form & IMMEDIATE);
	if (!(form & m))
		return length;
	uint8_t modrm = at[1], mod = modrm >> 6;
	bool has_sib = mod != 3 && (modrm & 7) == 4;
	uint8_t base = has_sib ? at[2] & 7 : modrm & 7;
	bool has_word = mod == 2 || (mod == 0 && base == 5);
	return length + 1 + has_sib + (mod == 1) + 4 * has_word;
}

/* 0: it is not known. A function of its own, since compilers clear such a structure at the begin of its function. */
static noinline int decoded_length(unsigned long address, unsigned long end)
{
	struct insn instruction;
	int most = min_t(unsigned long, MAX_INSN_SIZE, end - address);
	return nopal_symbols.decode(&instruction, (void *)address, most, INSN_MODE_KERN) ? 0 : instruction.length;
}

static int length_of(unsigned long address, unsigned long end)
{
	int length = end - address < MAX_INSN_SIZE ? 0 : common_length((const uint8_t *)address);
	return length ? length : decoded_length(address, end);
}

/* ---- ranges of text ---- */

struct extent {
	unsigned long first, end;
};
static struct extent text, locks, never[4];
/* Of page faults; set as the module is loaded, 0 where the kernel has none of that name. The kernel keeps probes out of
 * the handler, not calls: its sti ends the section of a fault. */
static unsigned long fault_entry, fault_handler;

static struct extent extent_of(const char *first, const char *end)
{
	return (struct extent){ nopal_symbols.find(first), nopal_symbols.find(end) };
}

static bool is_in(struct extent extent, unsigned long address)
{
	return address >= extent.first && address < extent.end;
}

/* Interrupts that these functions switch off stay off until the processor has left the kernel, which has no site. */
static bool leads_to_user(unsigned long function)
{
	static const char *const names[] = { "exit_to_user_mode", "syscall_exit_", "irqentry_exit", "exc_", "do_error_trap",
					     "math_error", "ret_from_fork", "do_fast_syscall", "do_int80" };
	char buffer[KSYM_NAME_LEN], *module;
	unsigned long size, offset;
	const char *name = nopal_symbols.name(function, &size, &offset, &module, buffer);
	for (uint32_t i = 0; name && i < ARRAY_SIZE(names); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

/* ---- sites ---- */

static const uint8_t prefixes[] = { NOPAL_PREEMPT_COUNT_PREFIXES };

/* Whether an instruction that ends at `end`, and whose opcode and ModRM are at `code`, uses the preemption count. */
static bool is_count(const uint8_t *code, unsigned long end)
{
	return (uint32_t)(end + *(int32_t *)(code + 2)) == (uint32_t)nopal_preempt_count();
}

static int kind_of_amount(int32_t amount)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(amounts); i++) {
		if (amount == amounts[i])
			return KIND_AMOUNTS + 2 * i;
		if (amount == -amounts[i])
			return KIND_AMOUNTS + 2 * i + 1;
	}
	return KIND_UNKNOWN;
}

/* The kind of the instruction at an address, or KIND_NONE; *length becomes that of the site. */
static int kind_at(unsigned long address, int *length)
{
	static const uint8_t nop[] = { 0x0f, 0x1f, 0x44, 0, 0 };
	const uint8_t *bytes = (const uint8_t *)address;
	if (*length == 1 && (bytes[0] == 0xfa || bytes[0] == 0xfb)) {
		if (memcmp(bytes + 1, nop, sizeof nop))
			return KIND_UNKNOWN;
		*length = 1 + sizeof nop;
		return bytes[0] == 0xfa ? KIND_CLI : KIND_STI;
	}
	const uint8_t *code = bytes + sizeof prefixes;
	if (memcmp(bytes, prefixes, sizeof prefixes) || *length < (int)sizeof prefixes + 6 || !is_count(code, address + *length))
		return KIND_NONE;
	if (code[0] == 0xff && code[1] == 0x05)
		return kind_of_amount(1);
	if (code[0] == 0xff && code[1] == 0x0d)
		return kind_of_amount(-1);
	if (code[0] == 0x83 && code[1] == 0x05)
		return kind_of_amount((int8_t)code[6]);
	if (code[0] == 0x81 && code[1] == 0x05)
		return kind_of_amount(*(int32_t *)(code + 6));
	/* add and sub of a register. */
	return code[0] == 0x01 || code[0] == 0x29 ? KIND_UNKNOWN : KIND_NONE;
}

static bool is_of_mode(int kind)
{
	bool is_irqs = kind < KIND_AMOUNTS;
	return mode == NOPAL_JOINT || is_irqs == (mode == NOPAL_IRQS);
}

static unsigned long thunk_of(int kind, uint32_t place)
{
	uint32_t number = kind;
	if (mode == NOPAL_JOINT)
		number += KINDS;
	unsigned long thunk = (unsigned long)nopal_section_thunks +
			      (number * NOPAL_SECTION_PLACES + place) * NOPAL_SECTION_THUNK_BYTES;
	return thunk;
}

/* A direct call needs no endbr64. */
static unsigned long behind_endbr(unsigned long thunk)
{
	static const uint8_t endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	return memcmp((void *)thunk, endbr, sizeof endbr) ? thunk : thunk + sizeof endbr;
}

static void leave(unsigned long address, enum unseen why)
{
	if (unseen_count < SITES_AT_MOST)
		unseen[unseen_count++] = (struct unseen_site){ address, why };
	else
		unkept[why]++;
}

static void add(unsigned long address, int kind, int length, uint32_t place)
{
	struct nopal_change *change = &changes[change_count++];
	*change = (struct nopal_change){ .address = address, .length = length, .kind = kind };
	memcpy(change->before, (void *)address, length);
	memset(change->after, NOPAL_CALL_PREFIX, length);
	uint8_t *call = change->after + length - CALL_BYTES;
	arch_jump(call, address + length - CALL_BYTES, behind_endbr(thunk_of(kind, place)));
	call[0] = 0xe8;
}

/* How many words the function has pushed up to here; below 0: it is not known. */
static int pushed_after(int pushed, const struct insn *instruction)
{
	uint8_t code = instruction->opcode.bytes[0];
	if (pushed < 0)
		return pushed;
	if ((code & 0xf8) == 0x50 || code == 0x9c)
		return pushed + 1;
	if ((code & 0xf8) == 0x58 || code == 0x9d)
		return pushed - 1;
	/* A jump may lead here from elsewhere, or a number was added to the stack pointer. */
	bool moves = (code == 0x83 || code == 0x81) && X86_MODRM_MOD(instruction->modrm.value) == 3 &&
		     X86_MODRM_RM(instruction->modrm.value) == 4;
	return code == 0xc3 || code == 0xe9 || code == 0xeb || moves ? -1 : pushed;
}

static bool is_noinstr_of_module(unsigned long address)
{
	preempt_disable();
	const struct module *module = is_in(text, address) ? 0 : nopal_symbols.module_at(address);
	bool found = module && address - (unsigned long)module->noinstr_text_start < module->noinstr_text_size;
	preempt_enable();
	return found;
}

static void consider(unsigned long address, int kind, int length, unsigned long function, int pushed)
{
	if (kind == KIND_NONE || (kind >= 0 && !is_of_mode(kind)))
		return;
	if (kind == KIND_UNKNOWN && mode != NOPAL_JOINT && (*(uint8_t *)address == 0x65) != (mode == NOPAL_PREEMPT))
		return;
	for (uint32_t i = 0; i < ARRAY_SIZE(never); i++)
		if (is_in(never[i], address))
			return leave(address, UNSEEN_NEVER);
	if (within_module(address, THIS_MODULE))
		return;
	if (is_noinstr_of_module(address))
		return leave(address, UNSEEN_NEVER);
	if (kind == KIND_UNKNOWN)
		return leave(address, UNSEEN_FORM);
	if (nopal_symbols.probes_refuse(function) && function != fault_handler)
		return leave(address, UNSEEN_NEVER);
	if (nopal_is_held(address, address + length - 1))
		return leave(address, UNSEEN_HELD);
	if (kind == KIND_CLI && leads_to_user(function))
		return leave(address, UNSEEN_TO_USER);
	bool caller = is_in(locks, address) && pushed >= 0 && pushed < NOPAL_SECTION_PLACES - 1;
	if (change_count < SITES_AT_MOST)
		add(address, kind, length, caller ? pushed + 1 : 0);
	else
		leave(address, UNSEEN_FORM);
}

/* Few functions have sites, and the kernel's decoder takes some hundred instructions for each. */
static bool has_sites(unsigned long from, unsigned long end)
{
	for (unsigned long address = from; address < end;) {
		int length = length_of(address, end), of_site = length;
		if (!length || kind_at(address, &of_site) != KIND_NONE)
			return length;
		address += length;
	}
	return false;
}

static void scan_function(unsigned long from, unsigned long function, unsigned long end)
{
	if (!has_sites(from, end))
		return;
	int pushed = from == function ? 0 : -1;
	for (unsigned long address = from; address < end;) {
		struct insn instruction;
		if (nopal_symbols.decode(&instruction, (void *)address, min_t(unsigned long, 15, end - address), INSN_MODE_KERN))
			return;
		int length = instruction.length;
		int kind = kind_at(address, &length);
		consider(address, kind, length, function, pushed);
		pushed = pushed_after(pushed, &instruction);
		address += max_t(int, instruction.length, kind >= 0 ? length : 1);
	}
}

static void scan(unsigned long first, unsigned long end)
{
	for (unsigned long at = first; at < end;) {
		unsigned long size = 0, offset = 0;
		if (!nopal_symbols.size_offset(at, &size, &offset) || size <= offset)
			return;
		unsigned long next = min(at - offset + size, end);
		scan_function(at, at - offset, next);
		at = next;
		cond_resched();
	}
}

static void scan_module(const struct module *module)
{
	unsigned long bytes, first = nopal_module_text(module, &bytes);
	scan(first, first + bytes);
}

static void scan_modules(void)
{
	const struct module *module;
	mutex_lock(nopal_symbols.module_mutex);
	list_for_each_entry(module, nopal_symbols.modules, list)
		if (module != THIS_MODULE && (module->state == MODULE_STATE_LIVE || module->state == MODULE_STATE_COMING))
			scan_module(module);
	mutex_unlock(nopal_symbols.module_mutex);
}

/* ---- interrupts ---- */

/* Begins a section after the processor itself has switched interrupts off. */
static void begin_from(unsigned long from)
{
	this_cpu_write(nopal_section.from, from);
	this_cpu_write(nopal_section.since, rdtsc());
}

/* At the begin of an interrupt. */
static void irq_in(unsigned long ip, unsigned long parent, struct ftrace_ops *ops, struct ftrace_regs *registers)
{
	bool is_open = READ_ONCE(this_cpu_ptr(&nopal_section)->since);
	/* Preemption was off before: the section goes on. */
	if (mode != NOPAL_JOINT || !preempt_count() || !is_open)
		begin_from(parent);
}

static struct ftrace_ops irq_in_ops;
static char irq_enter_name[] = "irq_enter_rcu";

/* Code that calls `thunk` and jumps to `target`; made once for each pair, and never taken away. */
static unsigned long tail_slot(unsigned long thunk, unsigned long target)
{
	static struct {
		unsigned long thunk, target, slot;
	} slots[8];
	uint32_t number = 0;
	while (number < ARRAY_SIZE(slots) && slots[number].slot)
		if (slots[number].thunk == thunk && slots[number].target == target)
			return slots[number].slot;
		else
			number++;
	uint8_t bytes[NOPAL_SLOT_BYTES], *slot = number < ARRAY_SIZE(slots) ? nopal_gate() : 0;
	if (!slot)
		return 0;
	memset(bytes, 0xcc, sizeof bytes);
	arch_jump(bytes, (uint64_t)slot, behind_endbr(thunk));
	bytes[0] = 0xe8;
	arch_jump(bytes + CALL_BYTES, (uint64_t)slot + CALL_BYTES, target);
	if (nopal_text_fill(slot, bytes, sizeof bytes))
		return 0;
	slots[number].thunk = thunk;
	slots[number].target = target;
	return slots[number].slot = (unsigned long)slot;
}

/* Gives an exit of `function` at this address a jump to the thunk that ends its interrupt. */
static void add_exit(unsigned long address, unsigned long to)
{
	if (!to || change_count == SITES_AT_MOST) {
		leave(address, UNSEEN_FORM);
	} else if (nopal_is_held(address, address + NOPAL_SITE_BYTES - 1)) {
		leave(address, UNSEEN_HELD);
	} else {
		struct nopal_change *change = &changes[change_count++];
		*change = (struct nopal_change){ .address = address, .length = NOPAL_SITE_BYTES, .kind = KIND_EXIT };
		memcpy(change->before, (void *)address, NOPAL_SITE_BYTES);
		arch_jump(change->after, address, to);
	}
}

/* The returns of a function and its jumps to others, as those of plans: 5 bytes each. */
static void add_exits(const char *name)
{
	static const uint8_t padding[] = { 0xcc, 0xcc, 0xcc, 0xcc };
	unsigned long function = nopal_symbols.find(name), size, offset;
	unsigned long out = (unsigned long)(mode == NOPAL_JOINT ? nopal_irq_out_joint : nopal_irq_out);
	unsigned long tail = (unsigned long)(mode == NOPAL_JOINT ? nopal_irq_out_tail_joint : nopal_irq_out_tail);
	if (!function || !nopal_symbols.size_offset(function, &size, &offset))
		return;
	for (unsigned long address = function; address < function + size;) {
		struct insn instruction;
		const uint8_t *bytes = (const uint8_t *)address;
		if (nopal_symbols.decode(&instruction, bytes, 15, INSN_MODE_KERN))
			return;
		if (bytes[0] == 0xc3) {
			add_exit(address, memcmp(bytes + 1, padding, sizeof padding) ? 0 : out);
		} else if (bytes[0] == 0xe9) {
			unsigned long target = address + CALL_BYTES + *(int32_t *)(bytes + 1);
			char buffer[KSYM_NAME_LEN], *module;
			unsigned long target_size, target_offset;
			const char *to = nopal_symbols.name(target, &target_size, &target_offset, &module, buffer);
			/* The other of these functions has its own exits. */
			if (to && strstr(to, "return_thunk"))
				add_exit(address, out);
			else if (target - function >= size && to && !strstr(to, "irq_exit_rcu"))
				add_exit(address, tail_slot(tail, target));
		}
		address += instruction.length;
	}
}

/* ---- page faults ---- */

/* A begin without that end would be taken for the begin of another exception's section. So these are the faults that the
 * handler serves with interrupts on. */
static void at_fault(void *unused, unsigned long address, struct pt_regs *registers, unsigned long error)
{
	bool is_served = address < TASK_SIZE_MAX && current->mm && !pagefault_disabled() && preempt_count() == NOPAL_PREEMPTION_OF_TRACEPOINTS;
	if (is_served && registers->flags & X86_EFLAGS_IF)
		begin_from(fault_entry);
}

/* Under nopal_lock. */
static struct nopal_tracepoint fault_points[] = {
	{ "page_fault_user", at_fault },
	{ "page_fault_kernel", at_fault },
};

/* ---- idle ---- */

/* An idle processor is in no section. */
static void at_idle(void *unused, unsigned int state, unsigned int processor)
{
	bool leaves = state == PWR_EVENT_EXIT && (mode != NOPAL_IRQS || irqs_disabled());
	this_cpu_write(nopal_section.from, (unsigned long)__builtin_return_address(0));
	this_cpu_write(nopal_section.since, leaves ? rdtsc() : 0);
}

static struct nopal_tracepoint idle_point = { "cpu_idle", at_idle };

/* ---- on and off ---- */

static int by_address(const void *one, const void *other)
{
	const struct nopal_change *first = one, *second = other;
	return first->address < second->address ? -1 : first->address > second->address;
}

static void sort_from(uint32_t first)
{
	sort(changes + first, change_count - first, sizeof *changes, by_address, 0);
}

static int find_all(void)
{
	change_count = unseen_count = 0;
	memset(unkept, 0, sizeof unkept);
	scan(text.first, text.end);
	scan_modules();
	if (mode != NOPAL_PREEMPT) {
		add_exits("irq_exit_rcu");
		add_exits("__irq_exit_rcu");
	}
	sort_from(0);
	uint32_t of_preemption = 0;
	for (uint32_t i = 0; i < change_count; i++)
		of_preemption += changes[i].kind >= KIND_AMOUNTS && changes[i].kind < KINDS;
	/* Some kernels count in another way: 7.3 in a word of 64 bits. */
	return mode == NOPAL_IRQS || of_preemption ? 0 : -EOPNOTSUPP;
}

static void close_here(void *unused)
{
	this_cpu_write(nopal_section.since, 0);
}

/* `done` tells those that were changed from those that were left alone because other bytes stood there. */
static void turn_round(uint32_t first)
{
	uint32_t kept = first;
	for (uint32_t i = first; i < change_count; i++) {
		struct nopal_change change = changes[i];
		if (!change.done) {
			leave(change.address, UNSEEN_HELD);
			continue;
		}
		changes[kept] = change;
		memcpy(changes[kept].before, change.after, NOPAL_CHANGE_BYTES);
		memcpy(changes[kept].after, change.before, NOPAL_CHANGE_BYTES);
		changes[kept++].done = false;
	}
	change_count = kept;
}

static void free_sites(void)
{
	vfree(changes);
	vfree(unseen);
	changes = 0;
	unseen = 0;
}

static int watch_interrupts(bool watch)
{
	int failed = 0;
	if (mode == NOPAL_PREEMPT)
		return 0;
	if (watch) {
		irq_in_ops = (struct ftrace_ops){ .func = irq_in };
		failed = ftrace_set_filter(&irq_in_ops, irq_enter_name, sizeof irq_enter_name - 1, 1);
		if (!failed)
			failed = register_ftrace_function(&irq_in_ops);
		/* Without the handler, no end of their sections is seen. */
		if (!failed && fault_entry && fault_handler)
			nopal_tracepoints_join(fault_points, ARRAY_SIZE(fault_points));
	} else {
		nopal_tracepoints_leave(fault_points, ARRAY_SIZE(fault_points));
		failed = unregister_ftrace_function(&irq_in_ops);
	}
	/* It stays set after this, and must not be freed again. */
	if (!watch || failed)
		ftrace_free_filter(&irq_in_ops);
	return failed;
}

int nopal_sections_on(enum nopal_mode wanted)
{
	if (on)
		return -EBUSY;
#ifdef X86_FEATURE_CALL_DEPTH
	/* The returns of the thunks would change the flags that tell of a pending switch of tasks. */
	if (wanted != NOPAL_IRQS && boot_cpu_has(X86_FEATURE_CALL_DEPTH))
		return -EOPNOTSUPP;
#endif
	mode = wanted;
	changes = vzalloc(SITES_AT_MOST * sizeof *changes);
	unseen = vzalloc(SITES_AT_MOST * sizeof *unseen);
	int failed = changes && unseen ? find_all() : -ENOMEM;
	if (failed)
		goto no_changes;
	on_each_cpu(close_here, 0, 1);
	failed = watch_interrupts(true);
	if (failed)
		goto no_changes;
	failed = nopal_tracepoints_join(&idle_point, 1);
	if (failed)
		goto no_idle;
	failed = nopal_text_change(changes, change_count);
	on = true;
	turn_round(0);
	if (failed)
		nopal_sections_off();
	return failed;
no_idle:
	watch_interrupts(false);
no_changes:
	free_sites();
	return failed;
}

int nopal_sections_off(void)
{
	if (!on)
		return 0;
	int failed = nopal_text_change(changes, change_count);
	uint32_t kept = 0;
	for (uint32_t i = 0; i < change_count; i++)
		if (!changes[i].done)
			changes[kept++] = changes[i];
	change_count = kept;
	if (failed || kept)
		return failed ? failed : -EBUSY;
	on = false;
	nopal_tracepoints_leave(&idle_point, 1);
	watch_interrupts(false);
	/* Tasks may stand in a thunk until they have next given up the processor. */
	synchronize_rcu_tasks();
	if (nopal_symbols.wait_for_tasks_rude)
		nopal_symbols.wait_for_tasks_rude();
	on_each_cpu(close_here, 0, 1);
	free_sites();
	return 0;
}

static void forget_unseen(const struct module *module)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < unseen_count; i++)
		if (!within_module(unseen[i].address, module))
			unseen[kept++] = unseen[i];
	unseen_count = kept;
}

/* None of its code has run. The text that only its beginning needs is left alone. If the module was being loaded when the
 * tracer came on, this is the second look at it. */
static void come(const struct module *module)
{
	uint32_t first = change_count;
	forget_unseen(module);
	scan_module(module);
	sort_from(first);
	/* Those that it fails to change are told as not seen. */
	nopal_text_change(changes + first, change_count - first);
	turn_round(first);
	sort_from(0);
}

/* A module that goes takes its sites with it. */
static void go(const struct module *module)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < change_count; i++)
		if (!within_module(changes[i].address, module))
			changes[kept++] = changes[i];
	change_count = kept;
	forget_unseen(module);
}

static int at_module(struct notifier_block *block, unsigned long event, void *data)
{
	if (data == THIS_MODULE)
		return NOTIFY_DONE;
	mutex_lock(&nopal_lock);
	if (on && event == MODULE_STATE_COMING)
		come(data);
	else if (on && event == MODULE_STATE_GOING)
		go(data);
	mutex_unlock(&nopal_lock);
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = at_module };

unsigned long nopal_sections_callee(unsigned long address)
{
	const uint8_t *call = (const uint8_t *)address - CALL_BYTES;
	if (!nopal_symbols.is_text((unsigned long)call) || call[0] != 0xe8)
		return 0;
	unsigned long callee = address + *(int32_t *)(call + 1);
	return is_in(locks, callee) ? callee : 0;
}

void nopal_sections_show(struct seq_file *file)
{
	if (!on)
		return;
	uint32_t kinds[KINDS + 1] = { 0 }, more = 0, less = 0, left = unseen_count;
	for (uint32_t i = 0; i < change_count; i++)
		kinds[changes[i].kind]++;
	for (uint32_t i = KIND_AMOUNTS; i < KINDS; i++)
		*(i % 2 ? &less : &more) += kinds[i];
	for (uint32_t why = 0; why < UNSEEN_KINDS; why++)
		left += unkept[why];
	seq_printf(file, "# sites: %u cli, %u sti, %u of preemption off, %u of preemption on, %u ends of interrupts; %u not seen\n",
		   kinds[KIND_CLI], kinds[KIND_STI], more, less, kinds[KIND_EXIT], left);
	for (uint32_t why = 0; why < UNSEEN_KINDS; why++) {
		uint32_t count = unkept[why], shown = 0;
		for (uint32_t i = 0; i < unseen_count; i++)
			count += unseen[i].why == why;
		if (!count)
			continue;
		seq_printf(file, "# not seen, %s: %u:", unseen_words[why], count);
		for (uint32_t i = 0; i < unseen_count && shown < UNSEEN_SHOWN; i++)
			if (unseen[i].why == why) {
				seq_printf(file, " %pS", (void *)unseen[i].address);
				shown++;
			}
		seq_puts(file, count > shown ? " ...\n" : "\n");
	}
}

int nopal_sections_begin(void)
{
	text = extent_of("_stext", "_etext");
	locks = extent_of("__lock_text_start", "__lock_text_end");
	never[0] = extent_of("__noinstr_text_start", "__noinstr_text_end");
	never[1] = extent_of("__entry_text_start", "__entry_text_end");
	never[2] = extent_of("__cpuidle_text_start", "__cpuidle_text_end");
	never[3] = extent_of("__static_call_text_start", "__static_call_text_end");
	fault_handler = nopal_symbols.find("do_user_addr_fault");
	fault_entry = nopal_symbols.find("exc_page_fault");
	if (!text.first || !text.end || !never[0].end || !never[1].end)
		return -ENOENT;
	return register_module_notifier(&notifier);
}

void nopal_sections_end(void)
{
	for (int failed = -EBUSY; failed;) {
		mutex_lock(&nopal_lock);
		failed = nopal_sections_off();
		mutex_unlock(&nopal_lock);
		if (failed)
			msleep(10);
	}
	unregister_module_notifier(&notifier);
}
