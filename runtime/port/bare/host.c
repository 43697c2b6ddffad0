/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The host that core needs, in a kernel that has nothing: a context for each processor, its stack with its mirror, and
 * chunks. A processor takes the place of a thread in a process, and its interrupts that of signal handlers.
 */
#include "bare.h"
#include "port.h"
#include "thunk.h"

#define FS_BASE 0xc0000100u
#define PROCESS 1               /* the kernel, in records */

/* %fs leads here, as to a thread's control block in a process. Written by its own processor. */
struct processor {
	struct processor *self;
	uint32_t token;
	uint64_t stack;
	uint64_t stack_bytes;
	uint64_t settled;       /* its chunks with lower sequences are complete; also read by the one that collects */
	struct nopal_context context;
};

/* The states and the chunks change by the rules of chunk.c. */
static struct {
	struct nopal_region region;
	uint32_t states[NOPAL_BARE_CHUNKS];
	_Alignas(NOPAL_CHUNK_BYTES) uint8_t chunks[NOPAL_BARE_CHUNKS][NOPAL_CHUNK_BYTES];
} memory;

static struct processor processors[NOPAL_BARE_PROCESSORS];
/* Each processor writes its own place when it joins. */
static struct nopal_threads threads;
/* Written by nopal_bare_begin; constant afterwards, except for the traces. */
static struct nopal_process process;
struct nopal_process *const volatile nopal_process = &process;
struct nopal_bare nopal_bare;
struct nopal_traces nopal_bare_traces;

static struct processor *here(void)
{
	struct processor *self;
	__asm__ volatile("mov %%fs:0, %0" : "=r"(self));
	return self;
}

/* ---- what core asks for ---- */

uint64_t port_clock(void)
{
	uint32_t low, high;
	__asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

/* For probes, of which there are none. */
bool port_read(uint64_t address, void *to, uint32_t bytes)
{
	__builtin_memcpy(to, (const void *)address, bytes);
	return true;
}

struct nopal_context *nopal_context_get(struct nopal_process *of)
{
	return of ? &here()->context : 0;
}

bool nopal_context_is_own(struct nopal_process *of, const struct nopal_context *context)
{
	return nopal_context_get(of) == context;
}

void nopal_count_lost(struct nopal_process *of, uint32_t reason)
{
	nopal_region_lose(of->region, here()->token, reason, 1);
}

/* No event waits in a kernel. */
bool nopal_wait_step(struct nopal_process *of, struct nopal_patience *patience, uint32_t *word, uint32_t value)
{
	return (void)of, (void)patience, (void)word, (void)value, false;
}

enum nopal_stack nopal_stack_reach(struct nopal_process *of, struct nopal_range *range, uint64_t slot)
{
	const struct processor *self = here();
	struct nopal_range known = *range;
	bool is_mirrored = of->mirror && slot - self->stack < self->stack_bytes;
	*range = (struct nopal_range){ is_mirrored ? self->stack : slot & ~4095ull, is_mirrored ? self->stack_bytes : 0 };
	return range->low == known.low && range->span == known.span ? NOPAL_STACK_SAME : NOPAL_STACK_ANOTHER;
}

int nopal_is_generated(uint64_t address)
{
	return address - (uint64_t)nopal_image < 1ull << ARENA_SHIFT;
}

/* ---- the begin ---- */

void nopal_bare_begin(const struct nopal_bare *kernel)
{
	nopal_bare = *kernel;
	nopal_bare_traces = (struct nopal_traces){
		.functions = kernel->functions,
		.function_count = kernel->function_count,
		.say = kernel->say,
		.region = &memory.region,
	};
	memory.region = (struct nopal_region){ .version = NOPAL_ABI_VERSION, .chunk_count = NOPAL_BARE_CHUNKS, .freed = 1 };
	process.region = &memory.region;
	process.state_offset = (uint64_t)memory.states - (uint64_t)&memory;
	process.chunk_offset = (uint64_t)memory.chunks - (uint64_t)&memory;
	process.chunk_limit = NOPAL_BARE_CHUNKS;
	process.mirror = kernel->mirror;
	process.mappings_left = NOPAL_STACK_PARTS;
	arch_fill_in(kernel->mirror, &threads, offsetof(struct processor, token));
	nopal_bare_text_begin();
}

void nopal_bare_join(uint32_t number, uint64_t stack, uint64_t stack_bytes)
{
	struct processor *self = &processors[number];
	uint64_t pointer = (uint64_t)self, none = 0;
	*self = (struct processor){ .self = self, .token = number + 1, .stack = stack, .stack_bytes = stack_bytes };
	self->context.pointer = pointer;
	self->context.token = self->context.thread = self->token;
	self->context.process = PROCESS;
	/* Its lower bits tell the owners of chunks apart. */
	self->context.begin = (port_clock() & ~0xffffull) | number;
	self->context.waiting = 1;
	uint32_t place = (uint32_t)pointer * NOPAL_THREAD_HASH >> NOPAL_THREAD_SHIFT;
	for (; !__atomic_compare_exchange_n(&threads.pointers[place], &none, pointer, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); none = 0)
		place = (place + 1) % NOPAL_THREADS;
	threads.contexts[place] = &self->context;
	__asm__ volatile("wrmsr" : : "c"(FS_BASE), "a"((uint32_t)pointer), "d"((uint32_t)(pointer >> 32)) : "memory");
}

/* ---- data out ---- */

/* With interrupts off, no handler records in between, and this code interrupts none. */
void nopal_bare_rest(void)
{
	struct processor *self = here();
	uint64_t flags;
	__asm__ volatile("pushf; pop %0; cli" : "=r"(flags) : : "memory");
	uint64_t position = self->context.position;
	if (position) {
		struct nopal_chunk_header *chunk = nopal_chunk_of(position);
		chunk->content_bits = (position - (uint64_t)chunk) * 8;
		nopal_chunk_abandon(&process, &self->context);
		self->context.position = 0;
	}
	/* Release pairs with the acquire in is_complete: a processor that reads this sees all records before. */
	__atomic_store_n(&self->settled, self->context.switches, __ATOMIC_RELEASE);
	__asm__ volatile("push %0; popf" : : "r"(flags) : "memory", "cc");
}

/* Whether its processor has handed it over and has rested since. A chunk that an interrupt has handed over may lack a
 * record that the interrupted code has reserved and not stored yet. */
static bool is_complete(uint32_t index, const struct nopal_chunk_header *chunk)
{
	uint32_t state = __atomic_load_n(&memory.states[index], __ATOMIC_ACQUIRE);
	return (state & NOPAL_CHUNK_STATE_MASK) == NOPAL_CHUNK_FULL &&
	       chunk->sequence < __atomic_load_n(&processors[chunk->thread - 1].settled, __ATOMIC_ACQUIRE);
}

uint32_t nopal_bare_collect(void)
{
	uint32_t sent = 0;
	for (uint32_t index = 0; index < NOPAL_BARE_CHUNKS; index++) {
		struct nopal_chunk_header *chunk = (struct nopal_chunk_header *)memory.chunks[index];
		if (!is_complete(index, chunk))
			continue;
		nopal_bare.send(chunk, (uint32_t)(chunk->content_bits / 8));
		__builtin_memset(chunk, 0, NOPAL_CHUNK_BYTES);
		/* Release pairs with the acquire of the processor that takes it, which finds zeroes. */
		__atomic_store_n(&memory.states[index], NOPAL_CHUNK_FREE, __ATOMIC_RELEASE);
		__atomic_store_n(&memory.region.first_free, index, __ATOMIC_RELAXED);
		__atomic_add_fetch(&memory.region.freed, 1, __ATOMIC_RELEASE);
		sent++;
	}
	return sent;
}
