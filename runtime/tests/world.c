/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0 */
#include "world.h"

#include <sys/mman.h>

struct nopal_process process;
struct nopal_process *const volatile nopal_process = &process;
struct nopal_region *region;
struct event events[EVENTS];
uint32_t event_count;
char circumstances[256];

static struct sim_thread first_thread;

_Noreturn void failed(const char *file, int line, const char *condition)
{
	printf("%s:%d: not so: %s\n%s\n", file, line, condition, circumstances);
	fflush(stdout);
	abort();
}

static void *zeroed_pages(void *old, size_t bytes)
{
	if (old) {
		CHECK(madvise(old, bytes, MADV_DONTNEED) == 0);
		return old;
	}
	/* Aligned like chunks. */
	char *at = mmap(0, bytes + NOPAL_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at + nopal_chunk_room((uint64_t)at);
}

#define CHUNKS_AT_MOST 64

void world_begin(uint32_t chunks)
{
	static void *memory, *contexts, *parts, *threads, *counted, *counters;
	CHECK(chunks <= CHUNKS_AT_MOST);
	if (!memory)
		memory = zeroed_pages(0, (CHUNKS_AT_MOST + 1) * NOPAL_CHUNK_BYTES);
	memset(memory, 0, NOPAL_CHUNK_BYTES);   /* the other chunks are zero since the last end of the world */
	contexts = zeroed_pages(contexts, NOPAL_CONTEXTS * sizeof(struct nopal_context));
	parts = zeroed_pages(parts, NOPAL_STACK_PARTS * 8);
	threads = zeroed_pages(threads, sizeof(struct nopal_threads));
	counted = zeroed_pages(counted, NOPAL_COUNTER_GROUPS * sizeof(struct nopal_counted));
	counters = zeroed_pages(counters, NOPAL_COUNTERS_BYTES);
	((struct nopal_threads *)threads)->pointers[0] = NOPAL_THREAD_NONE;
	region = memory;
	region->version = NOPAL_ABI_VERSION;
	region->chunk_count = chunks;
	region->freed = 1;
	region->state_offset = sizeof *region;
	region->chunk_offset = NOPAL_CHUNK_BYTES;
	process = (struct nopal_process){
		.region = region,
		.state_offset = region->state_offset,
		.chunk_offset = region->chunk_offset,
		.chunk_limit = chunks,
		.contexts = contexts,
		.stack_parts = parts,
		.threads = threads,
		.counted = counted,
		.counter_offset = (uint64_t)counters - (uint64_t)memory,
		.mirror = MIRROR,
		.mappings_left = NOPAL_STACK_PARTS,
		.thread_slot = offsetof(struct sim_thread, id_in_block),
		.process = 100,
	};
	sim_reset();
	sim.clock = 0x500000000;
	sim.process = 100;
	memset(events, 0, (event_count + 1) * sizeof *events);
	event_count = 0;
	first_thread = (struct sim_thread){ 0 };
	thread_begin(&first_thread, 100);
}

void thread_begin(struct sim_thread *thread, uint32_t id)
{
	thread->self = thread;
	thread->id = id;
	thread->id_in_block = id;
	thread->signals_blocked = false;
	sim.running = thread;
}

int main(int count, char **words)
{
	const struct test *groups[] = { race_tests, death_tests, full_tests, context_tests,
					stack_tests, request_tests,  unwind_tests, command_tests,
					latency_tests, kernel_tests,  count_tests };
	for (unsigned i = 0; i < sizeof groups / sizeof *groups; i++)
		for (const struct test *test = groups[i]; test->name; test++) {
			if (count < 2) {
				puts(test->name);
			} else if (!strcmp(test->name, words[1])) {
				test->run();
				return 0;
			}
		}
	return count < 2 ? 0 : 2;
}
