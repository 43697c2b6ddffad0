/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0 */
#include "actors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explore.h"
#include "port.h"

struct sim_actor sim_actor[SIM_ACTORS];
struct sim_actors sim_actors;
void *sim_place[SIM_PLACES];
uint32_t sim_place_bytes;
void *sim_word[SIM_WORDS];
bool sim_stops_alone;
enum sim_weakness (*sim_weakness_of)(enum sim_operation operation, const volatile void *at, uint64_t stored);

/* ---- Stacks ---- */

static void *explorer;

void sim_switch_stacks(void **left, void *entered);
__asm__(".text\n"
	"sim_switch_stacks:\n"
	"	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"	mov %rsp, (%rdi)\n"
	"	mov %rsi, %rsp\n"
	"	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
	"	ret\n");

static void stop_before(const char *what, bool alone)
{
	struct sim_actor *actor = &sim_actor[sim_actors.running];
	if (alone && !sim_stops_alone)
		return;
	actor->before = what;
	actor->alone = alone;
	sim_switch_stacks(&actor->stack_pointer, explorer);
	actor->before = 0;
	actor->alone = false;
	if (actor->on_signal) {
		void (*handler)(void) = actor->on_signal;
		actor->on_signal = 0;
		handler();
		/* The operation follows at once, without another stop: the actor has stopped before it already. */
	}
}

static void ended(void)
{
	struct sim_actor *actor = &sim_actor[sim_actors.running];
	void *nowhere;
	actor->stack_pointer = 0;
	sim_switch_stacks(&nowhere, explorer);
}

void sim_actors_begin(void)
{
	memset(sim_actor, 0, sizeof sim_actor);
	memset(&sim_actors, 0, sizeof sim_actors);
	for (uint32_t place = 0; place < SIM_PLACES; place++)
		sim_actors.write[place].actors = 0xff;
}

void sim_actor_begin(uint32_t actor, void (*run)(void))
{
	struct sim_actor *begun = &sim_actor[actor];
	memset(begun, 0, sizeof *begun);
	/* The registers, the first function, and its return address: aligned as at a call. */
	void **top = (void **)(begun->stack + SIM_STACK_BYTES) - 1;
	top[0] = (void *)ended;
	*--top = (void *)run;
	begun->stack_pointer = top - 6;
}

void sim_actor_go_on(uint32_t actor)
{
	struct sim_actor *chosen = &sim_actor[actor];
	sim_actors.running = actor;
	sim_switch_stacks(&explorer, chosen->stack_pointer);
	sim_actors.running = 0;
	/* Bytes below the stack pointer are no part of the state. */
	uint8_t *used = chosen->stack_pointer ? chosen->stack_pointer : chosen->stack + SIM_STACK_BYTES;
	if (used < chosen->stack + 128) {
		puts("an actor's stack is too small");
		abort();
	}
	memset(chosen->stack, 0, (size_t)(used - chosen->stack));
}

void sim_actor_kill(uint32_t actor)
{
	memset(&sim_actor[actor], 0, sizeof sim_actor[actor]);
}

/* ---- What each actor knows of the others ---- */

static void learn(struct sim_known *known, uint8_t from, uint8_t word)
{
	if ((from && known->actors & from) || (word && known->words & word))
		known->actors |= (uint8_t)(1 << sim_actors.running);
}

static void each(void (*act)(struct sim_known *known, uint8_t a, uint8_t b), uint8_t a, uint8_t b)
{
	for (uint32_t place = 0; place < SIM_PLACES; place++) {
		act(&sim_actors.write[place], a, b);
		for (uint32_t actor = 0; actor < SIM_ACTORS; actor++)
			act(&sim_actors.read[place][actor], a, b);
	}
}

static void tell(struct sim_known *known, uint8_t word, uint8_t adds)
{
	if (known->actors & 1 << sim_actors.running)
		known->words |= word;
	else if (!adds)
		known->words &= (uint8_t)~word;
}

static void be_silent(struct sim_known *known, uint8_t word, uint8_t unused)
{
	(void)unused;
	known->words &= (uint8_t)~word;
}

void sim_learn_of(uint32_t actor)
{
	each(learn, (uint8_t)(1 << actor), 0);
}

static int place_number(const void *at)
{
	for (int place = 0; place < SIM_PLACES; place++)
		if ((uintptr_t)at - (uintptr_t)sim_place[place] < sim_place_bytes)
			return place;
	return -1;
}

void sim_reads(const void *at)
{
	int place = place_number(at);
	if (place < 0)
		return;
	uint8_t self = (uint8_t)(1 << sim_actors.running);
	if (!(sim_actors.write[place].actors & self))
		sim_broken("memory is read that somebody else may be writing");
	sim_actors.read[place][sim_actors.running] = (struct sim_known){ self, 0 };
}

void sim_writes(const void *at)
{
	int place = place_number(at);
	if (place < 0)
		return;
	uint8_t self = (uint8_t)(1 << sim_actors.running);
	bool known = sim_actors.write[place].actors & self;
	for (uint32_t actor = 0; actor < SIM_ACTORS; actor++) {
		struct sim_known *read = &sim_actors.read[place][actor];
		known &= !read->actors || read->actors & self;
		*read = (struct sim_known){ 0, 0 };
	}
	if (!known)
		sim_broken("memory is written that somebody else may be using");
	sim_actors.write[place] = (struct sim_known){ self, 0 };
}

/* ---- What the compiler calls ---- */

static uint8_t word_bit(const volatile void *at)
{
	for (uint32_t word = 0; word < SIM_WORDS; word++)
		if (sim_word[word] == at)
			return (uint8_t)(1 << word);
	return 0;
}

static enum sim_weakness weakness_of(enum sim_operation operation, const volatile void *at, uint64_t stored)
{
	return sim_weakness_of ? sim_weakness_of(operation, at, stored) : SIM_SOUND;
}

static void acquire(uint8_t word, int order)
{
	if (word && (order == __ATOMIC_ACQUIRE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST))
		each(learn, 0, word);
}

static void release(uint8_t word, int order, bool adds)
{
	if (!word)
		return;
	if (order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST)
		each(tell, word, adds);
	else if (!adds)
		each(be_silent, word, 0);
}

#define ATOMICS(bits)                                                                                                 \
	uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order);                        \
	void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value, int order);                 \
	int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *at, uint##bits##_t *expected,        \
							  uint##bits##_t value, int order, int failed);                \
	uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order)                         \
	{                                                                                                              \
		stop_before("a load", !word_bit(at));                                                                  \
		if (weakness_of(SIM_LOAD, at, 0) == SIM_RELAXED)                                                       \
			order = __ATOMIC_RELAXED;                                                                      \
		acquire(word_bit(at), order);                                                                          \
		return *at;                                                                                            \
	}                                                                                                              \
	void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value, int order)                  \
	{                                                                                                              \
		stop_before("a store", !word_bit(at));                                                                 \
		if (weakness_of(SIM_STORE, at, value) == SIM_RELAXED)                                                  \
			order = __ATOMIC_RELAXED;                                                                      \
		release(word_bit(at), order, false);                                                                   \
		*at = value;                                                                                           \
	}                                                                                                              \
	int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *at, uint##bits##_t *expected,        \
							  uint##bits##_t value, int order, int failed)                 \
	{                                                                                                              \
		stop_before("a compare-and-swap", !word_bit(at));                                                      \
		enum sim_weakness weakness = weakness_of(SIM_COMPARE_EXCHANGE, at, value);                             \
		if (*at != *expected && weakness != SIM_CARELESS) {                                                    \
			acquire(word_bit(at), failed);                                                                 \
			*expected = *at;                                                                               \
			return 0;                                                                                      \
		}                                                                                                      \
		if (weakness == SIM_RELAXED)                                                                           \
			order = __ATOMIC_RELAXED;                                                                      \
		acquire(word_bit(at), order);                                                                          \
		release(word_bit(at), order, true);                                                                    \
		*at = value;                                                                                           \
		return 1;                                                                                              \
	}

ATOMICS(32)
ATOMICS(64)

/* An addition orders as a compare-and-swap does. */
#define ADDITION(bits, name, operator)                                                                                \
	uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *at, uint##bits##_t value, int order);      \
	uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *at, uint##bits##_t value, int order)       \
	{                                                                                                              \
		stop_before("an addition", !word_bit(at));                                                             \
		uint##bits##_t before = *at, after = before operator value;                                            \
		if (weakness_of(SIM_ADDITION, at, after) == SIM_RELAXED)                                               \
			order = __ATOMIC_RELAXED;                                                                      \
		acquire(word_bit(at), order);                                                                          \
		release(word_bit(at), order, true);                                                                    \
		*at = after;                                                                                           \
		return before;                                                                                         \
	}

ADDITION(32, fetch_add, +)
ADDITION(64, fetch_add, +)
ADDITION(64, fetch_sub, -)

#define ACCESS(name, does)                                                                                            \
	void __tsan_##name(void *at);                                                                                  \
	void __tsan_##name(void *at)                                                                                   \
	{                                                                                                              \
		does(at);                                                                                              \
	}

ACCESS(read1, sim_reads)
ACCESS(read2, sim_reads)
ACCESS(read4, sim_reads)
ACCESS(read8, sim_reads)
ACCESS(read16, sim_reads)
ACCESS(write1, sim_writes)
ACCESS(write2, sim_writes)
ACCESS(write4, sim_writes)
ACCESS(write8, sim_writes)
ACCESS(write16, sim_writes)

void __tsan_read_range(void *at, long bytes);
void __tsan_read_range(void *at, long bytes)
{
	(void)bytes;
	sim_reads(at);
}
void __tsan_write_range(void *at, long bytes);
void __tsan_write_range(void *at, long bytes)
{
	(void)bytes;
	sim_writes(at);
}
void __tsan_init(void);
void __tsan_init(void)
{
}
void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller)
{
	(void)caller;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}

void port_race_point(const char *name);
void port_race_point(const char *name)
{
	stop_before(name, false);
}
