/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Threads, and how they are identified.
 */
#include "stubs.h"
#include "world.h"

static struct sim_thread threads[NOPAL_CONTEXTS + 10];

static void each_thread_has_a_chunk(void)
{
	world_begin(40);
	memset(threads, 0, sizeof threads);
	for (uint32_t round = 0; round < 3; round++)
		for (uint32_t i = 0; i < 40; i++) {
			if (!round)
				thread_begin(&threads[i], 1000 + i);
			sim.running = &threads[i];
			play_down(SLOT + 2 * PART * i, 5);
		}
	CHECK(chunks_in_state(NOPAL_CHUNK_OWNED) == 40);
	world_end(0);
}

/* The same thread pointer, another thread: its counters begin anew, and its predecessor's chunk is handed over. */
static void thread_on_the_memory_of_another(void)
{
	world_begin(4);
	memset(threads, 0, sizeof threads);
	thread_begin(&threads[0], 1000);
	play_down(SLOT, 10);
	struct nopal_context *context = context_of(&threads[0]);
	uint64_t begin = context->begin;
	thread_begin(&threads[0], 1001);
	play_down(SLOT, 10);
	CHECK(context_of(&threads[0]) == context && context->begin > begin && context->thread == 1001);
	CHECK(nopal_chunk_of(context->position)->sequence == 0);
	CHECK(chunks_in_state(NOPAL_CHUNK_FULL) == 1 && chunks_in_state(NOPAL_CHUNK_OWNED) == 1);
	world_end(0);
}

/* The tool has collected the predecessor's chunk and given it to a third thread before the memory is used again. */
static void chunk_of_a_predecessor_may_be_anothers(void)
{
	world_begin(4);
	memset(threads, 0, sizeof threads);
	thread_begin(&threads[0], 1000);
	play_down(SLOT, 10);
	tool_take_over(1000);
	thread_begin(&threads[1], 2000);
	play_down(SLOT + PART, 10);
	thread_begin(&threads[0], 1001);
	play_down(SLOT, 10);
	CHECK(chunks_in_state(NOPAL_CHUNK_OWNED) == 2 && chunks_in_state(NOPAL_CHUNK_FULL) == 0);
	sim.running = &threads[1];
	play_down(SLOT + PART, 10);
	world_end(0);
}

/* A forked child: contexts are zero, all else is as before. After a raw system call the block holds the parent's id. */
static void fork_child(bool raw)
{
	static struct nopal_context parents;
	world_begin(4);
	process.tracer = 77;
	play_down(SLOT, 10);
	struct nopal_context *context = context_of(sim.running);
	parents = *context;
	memset(context, 0, sizeof *context);
	sim.process = 101;
	sim.running->id = 101;
	sim.running->id_in_block = raw ? 100 : 101;
	play_down(SLOT - 640, 10);
	CHECK(sim.allowed_tracer == 77);
	CHECK(context->process == 101 && context->thread == 101);
	CHECK(nopal_chunk_of(context->position) != nopal_chunk_of(parents.position));

	*context = parents;
	sim.process = 100;
	sim.running->id = sim.running->id_in_block = 100;
	play_down(SLOT - 640, 10);
	CHECK(chunks_in_state(NOPAL_CHUNK_OWNED) == 2);
	world_end(0);
}

static void child_of_fork(void) { fork_child(false); }
static void child_of_a_raw_fork(void) { fork_child(true); }

static void more_threads_than_contexts(void)
{
	world_begin(1);
	memset(threads, 0, sizeof threads);
	const uint32_t last = NOPAL_CONTEXTS - 2;   /* the first thread is this one's */
	play(NOPAL_KIND_ENTRY, SLOT);
	for (uint32_t i = 0; i < NOPAL_CONTEXTS - 2; i++) {
		thread_begin(&threads[i], 1000 + i);
		CHECK(nopal_context_get(&process));
	}
	CHECK(region->threads_untraced == 0);
	for (uint32_t i = 0; i < 3; i++) {
		thread_begin(&threads[last + i], 50000 + i);
		for (uint32_t j = 0; j < 5; j++) {
			uint32_t event = play(NOPAL_KIND_ENTRY, SLOT);
			CHECK(events[event].outcome == NOT_WRAPPED);
		}
		uint32_t calls = sim.system_calls;
		play(NOPAL_KIND_ENTRY, SLOT);
		CHECK(sim.system_calls == calls);
	}
	CHECK(region->threads_untraced == 3);
	CHECK(lost_events() == 18 && lost_for(NOPAL_LOST_TOO_MANY_THREADS) == 18);

	/* In a forked child there is room again. */
	memset(process.contexts, 0, NOPAL_CONTEXTS * sizeof *process.contexts);
	sim.process = 101;
	thread_begin(sim.running, 101);
	CHECK(nopal_context_get(&process));
	CHECK(region->threads_untraced == 3);
	world_end(0);
}

/* A thread that must not read the counter, as the kernel or a hook says, never reads it again. */
static void muted_thread(void)
{
	world_begin(2);
	sim.running->clock_faults = true;
	play_down(SLOT, 10);
	CHECK(sim.clock_reads == 0 && lost_events() == 10 && lost_for(NOPAL_LOST_NO_CLOCK) == 10);
	CHECK(chunks_in_state(NOPAL_CHUNK_OWNED) == 0);
	world_end(0);
}

static void signals_are_as_they_were(void)
{
	world_begin(2);
	play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(!sim.running->signals_blocked);
	memset(threads, 0, sizeof threads);
	thread_begin(&threads[0], 1000);
	threads[0].signals_blocked = true;
	play(NOPAL_KIND_ENTRY, SLOT);
	CHECK(threads[0].signals_blocked);
	world_end(0);
}

/* Under a filter that may kill: no system call, and the thread is known by its block, which is above its stack. */
static void new_thread_in_a_quiet_process(void)
{
	struct sim_thread above = { 0 };
	world_begin(2);
	play(NOPAL_KIND_ENTRY, SLOT);
	process.quiet = 1;
	uint32_t calls = sim.system_calls;
	thread_begin(&above, 1000);
	play_call(NOPAL_KIND_ENTRY, SLOT);
	uint32_t unmirrored = play(NOPAL_KIND_ENTRY, OTHER_STACK);
	CHECK(sim.system_calls == calls);
	struct nopal_context *context = context_of(&above);
	CHECK(context->thread == 1000 && context->process == 100);

	/* Nothing else is read: there may be no memory. */
	const uintptr_t elsewhere[] = { 8, 4096, (uintptr_t)&above - 0x100000, (uintptr_t)&above + 0x100000000 };
	for (unsigned i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
		sim.astray = elsewhere[i];
		CHECK(!nopal_context_get(&process) && sim.system_calls == calls);
	}
	sim.astray = 0;
	world_end(0);
	CHECK(events[unmirrored].found_kind == NOPAL_KIND_ONLY);
}

/* Set by the scenario below before it plays: a thread whose control block is not on the simulated stack. */
static struct sim_thread *above_the_stack;

/* There, handlers find unfinished contexts. Nothing is lost; a chunk may wait for the end of the thread. */
static void first_event_of_a_quiet_process(void)
{
	world_begin(8);
	play(NOPAL_KIND_ENTRY, SLOT);
	process.quiet = 1;
	thread_begin(above_the_stack, 1000);
	arm();
	play_call(NOPAL_KIND_ENTRY, SLOT);
}

static void handler(void)
{
	play_call(NOPAL_KIND_ENTRY, SLOT - 0x400);
}

static void all_is_found(void)
{
	CHECK(lost_events() == 0);
	tool_collect();
	tool_take_over(1000);
	CHECK(chunks_in_state(NOPAL_CHUNK_OWNED) == 1 && chunks_in_state(NOPAL_CHUNK_FULL) == 0);
	world_end(0);
}

static void handlers_while_a_quiet_thread_begins(void)
{
	struct sim_thread above = { 0 };
	above_the_stack = &above;
	at_all_race_points(first_event_of_a_quiet_process, handler, all_is_found);
}

/* A program has changed its thread pointer: its calls are lost meanwhile, and only the presence of memory is
 * checked. */
static void thread_pointer_leads_elsewhere(void)
{
	static _Alignas(4096) unsigned char pages[2][SIM_UNREADABLE];
	world_begin(4);
	play(NOPAL_KIND_ENTRY, SLOT);
	memset(pages, 0xff, sizeof pages);
	sim.unreadable = (uintptr_t)pages[0];
	struct sim_thread like_one = { &like_one, 999, 999, false, false };
	const uintptr_t elsewhere[] = { (uintptr_t)pages[0],     (uintptr_t)pages[0] + 2048, (uintptr_t)pages[0] - 8,
					(uintptr_t)pages[1] + 8, (uintptr_t)&like_one };
	uint32_t lost = 0;
	for (unsigned i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
		for (unsigned j = 0; j < 3; j++) {
			sim.astray = elsewhere[i];
			CHECK(events[play(NOPAL_KIND_ENTRY, SLOT - 64)].outcome == NOT_WRAPPED);
			CHECK(events[play(NOPAL_KIND_EXIT, SLOT)].outcome == NOT_WRAPPED);
			lost += 2;
			sim.astray = 0;
			play_call(NOPAL_KIND_ENTRY, SLOT - 128);
		}
	CHECK(lost_events() == lost && process.threads_noted == 1);
	CHECK(lost_for(NOPAL_LOST_UNKNOWN_THREAD) == lost);
	play(NOPAL_KIND_EXIT, SLOT);
	world_end(0);
}

/* Threads with the thread pointer of another one, such as those that share a control block: only its owner records, and
 * its records stay as they are. */
static void thread_pointer_of_another_thread(void)
{
	struct nopal_arguments arguments = { 0 };
	world_begin(4);
	memset(threads, 0, sizeof threads);
	struct sim_thread *owner = sim.running;
	play(NOPAL_KIND_ENTRY, SLOT);
	thread_begin(&threads[0], 1000);
	for (unsigned i = 0; i < 3; i++) {
		sim.running = &threads[0];
		sim.astray = (uintptr_t)owner;
		CHECK(events[play(NOPAL_KIND_ENTRY, OTHER_STACK)].outcome == NOT_WRAPPED);
		nopal_before_jump(&arguments);
		sim.astray = 0;
		sim.running = owner;
		uint32_t calls = sim.system_calls;
		play_call(NOPAL_KIND_ENTRY, SLOT - 64);
		CHECK(sim.system_calls == calls);
	}
	CHECK(lost_events() == 3);
	/* Its owner has not recorded yet. */
	thread_begin(&threads[1], 1001);
	sim.astray = (uintptr_t)&threads[0];
	CHECK(events[play(NOPAL_KIND_ENTRY, OTHER_STACK)].outcome == NOT_WRAPPED);
	CHECK(lost_events() == 4 && process.threads_noted == 1);
	CHECK(lost_for(NOPAL_LOST_UNKNOWN_THREAD) == 4);
	sim.astray = 0;
	world_end(0);
}

static uint32_t first_alive;

static bool is_below_first_alive(uint32_t thread)
{
	return thread != 100 && thread < first_alive;
}

/* Threads at ever new places. A few live at once, and one all the time. Some record. */
static void threads_that_end_make_room(void)
{
	static struct sim_thread many[3 * NOPAL_THREADS];
	const uint32_t count = sizeof many / sizeof *many, alive = 3;
	world_begin(8);
	struct sim_thread *first = sim.running;
	play(NOPAL_KIND_ENTRY, SLOT);
	struct nopal_context *context = context_of(first);
	sim.has_ended = is_below_first_alive;
	for (uint32_t i = 0; i < count; i++) {
		first_alive = i < alive ? 0 : 1000 + i - alive + 1;
		thread_begin(&many[i], 1000 + i);
		CHECK(nopal_context_get(&process)->thread == 1000 + i && context_of(&many[i]));
		CHECK(process.threads_noted <= NOPAL_THREADS_NOTED);
		if (i % 400 == 0)
			CHECK(events[play(NOPAL_KIND_ENTRY, SLOT + PART)].outcome == RECORDED);
		if (i >= alive) {
			tool_take_over(first_alive - 1);
			sim.running = &many[i - alive + 1];
			CHECK(nopal_context_get(&process)->thread == first_alive);
		}
		sim.running = first;
		CHECK(nopal_context_get(&process) == context);
	}
	CHECK(region->threads_untraced == 0);
	play_call(NOPAL_KIND_ENTRY, SLOT - 64);
	CHECK(lost_events() == 0);
	world_end(0);
}

/* A thread begins where another has ended, while that one's context is freed: it has its own or another one, and keeps
 * it. */
static struct sim_thread *successor;
static const char *moment;

static void successor_begins(const char *name)
{
	if (!moment || strcmp(name, moment))
		return;
	moment = 0;
	struct sim_thread *running = sim.running;
	thread_begin(successor, 90000);
	play_down(SLOT + 2 * PART, 3);
	sim.running = running;
}

static void begin_where_a_context_is_freed(const char *at)
{
	world_begin(8);
	memset(threads, 0, sizeof threads);
	sim.has_ended = is_below_first_alive;
	for (uint32_t i = 0; i < NOPAL_CONTEXTS - 2; i++) {
		thread_begin(&threads[i], 1000 + i);
		CHECK(nopal_context_get(&process));
	}
	thread_begin(&threads[NOPAL_CONTEXTS - 2], 70000);
	play_down(SLOT + 3 * PART, 3);
	first_alive = 1000 + NOPAL_CONTEXTS / 2;
	struct nopal_context *freed = process.contexts;
	while (!is_below_first_alive(freed->thread))
		freed++;
	successor = (struct sim_thread *)freed->pointer;
	moment = at;
	sim.at_race_point = successor_begins;
	thread_begin(&threads[NOPAL_CONTEXTS], 80000);
	play_down(SLOT, 3);
	CHECK(!moment && lost_events() == 0);
	struct nopal_context *its = context_of(successor);
	CHECK(its->thread == 90000 && its != context_of(&threads[NOPAL_CONTEXTS]));
	sim.running = successor;
	play_down(SLOT + 2 * PART - 640, 3);
	CHECK(context_of(successor) == its && lost_events() == 0);
	CHECK(chunks_in_state(NOPAL_CHUNK_OWNED) == 3);
	world_end(0);
}

static void threads_begin_where_contexts_are_freed(void)
{
	begin_where_a_context_is_freed("context to free found");
	begin_where_a_context_is_freed("context to free claimed");
}

const struct test context_tests[] = {
	{ "each_thread_has_a_chunk", each_thread_has_a_chunk },
	{ "thread_on_the_memory_of_another", thread_on_the_memory_of_another },
	{ "chunk_of_a_predecessor_may_be_anothers", chunk_of_a_predecessor_may_be_anothers },
	{ "child_of_fork", child_of_fork },
	{ "child_of_a_raw_fork", child_of_a_raw_fork },
	{ "more_threads_than_contexts", more_threads_than_contexts },
	{ "threads_that_end_make_room", threads_that_end_make_room },
	{ "threads_begin_where_contexts_are_freed", threads_begin_where_contexts_are_freed },
	{ "muted_thread", muted_thread },
	{ "signals_are_as_they_were", signals_are_as_they_were },
	{ "new_thread_in_a_quiet_process", new_thread_in_a_quiet_process },
	{ "thread_pointer_leads_elsewhere", thread_pointer_leads_elsewhere },
	{ "thread_pointer_of_another_thread", thread_pointer_of_another_thread },
	{ "handlers_while_a_quiet_thread_begins", handlers_while_a_quiet_thread_begins },
	{ 0, 0 },
};
