/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Requests to the tool, and the hooks that make them or that silence the runtime.
 */
#include "hooks.h"
#include "world.h"

#define MREMAP_MAYMOVE 1
#define MREMAP_FIXED 2
#define MREMAP_DONTUNMAP 4
#define PR_SET_DUMPABLE 4
#define PR_SET_NAME 15
#define PR_SET_SECCOMP 22
#define PR_SET_TSC 26
#define PR_TSC_ENABLE 1
#define PR_TSC_SIGSEGV 2
#define SECCOMP_MODE_STRICT 1
#define SECCOMP_MODE_FILTER 2
#define SECCOMP_SET_MODE_STRICT 0
#define SECCOMP_SET_MODE_FILTER 1
#define SECCOMP_GET_ACTION_AVAIL 2

static struct nopal_request seen;
static uint32_t waits;
static uint32_t answer;

static uint32_t state_of(uint32_t place) { return region->requests[place].state & NOPAL_REQUEST_STATE; }

static void tool_answers(uint32_t *word, uint32_t value)
{
	CHECK(*word == value);
	if (++waits < 5)
		return;
	for (uint32_t i = 0; i < NOPAL_REQUESTS; i++)
		if (state_of(i) == NOPAL_REQUEST_WAITING) {
			seen = region->requests[i];
			region->requests[i].state += answer - NOPAL_REQUEST_WAITING;
		}
}

static void begin(void)
{
	world_begin(2);
	play(NOPAL_KIND_ENTRY, SLOT);
	waits = 0;
	answer = NOPAL_REQUEST_DONE;
	seen = (struct nopal_request){ 0 };
	sim.in_wait = tool_answers;
}

static void all_requests_are_free(void)
{
	for (uint32_t i = 0; i < NOPAL_REQUESTS; i++)
		CHECK(state_of(i) == NOPAL_REQUEST_FREE);
	world_end(0);
}

static void request_is_answered(void)
{
	begin();
	uint32_t bell = region->bell;
	CHECK(!nopal_make_request(&process, NOPAL_REQUEST_EXEC, 0x1234, 7));
	CHECK(seen.what == NOPAL_REQUEST_EXEC && seen.word == 0x1234 && seen.process == 100 && seen.thread == 100);
	CHECK(seen.descriptor == 7);
	CHECK(region->bell == bell + 1 && sim.wakes == 1 && waits == 5);
	struct nopal_request first = seen;
	waits = 0;
	CHECK(!nopal_make_request(&process, NOPAL_REQUEST_EXEC, 0x1234, 7));
	CHECK(seen.thread == first.thread && seen.state != first.state);
	all_requests_are_free();
}

static void another_has_the_place(uint32_t *word, uint32_t value)
{
	CHECK(word == &region->requests[0].state);
	*word = value + NOPAL_REQUEST_TAKEN;
}

/* As after a fork by a signal handler: the other process has freed the place, and a third one waits there. */
static void place_is_taken_by_another(void)
{
	begin();
	sim.in_wait = another_has_the_place;
	nopal_make_request(&process, NOPAL_REQUEST_EXEC, 0, NOPAL_NO_DESCRIPTOR);
	CHECK(state_of(0) == NOPAL_REQUEST_WAITING && region->unanswered_executions == 1);
	region->requests[0].state -= NOPAL_REQUEST_WAITING;
	all_requests_are_free();
}

static void nobody_answers(uint32_t *word, uint32_t value)
{
	(void)word;
	(void)value;
	waits++;
}

static void request_is_given_up(void)
{
	begin();
	sim.in_wait = nobody_answers;
	uint64_t before = sim.clock;
	CHECK(!nopal_make_request(&process, NOPAL_REQUEST_LIBRARIES, 0, NOPAL_NO_DESCRIPTOR));
	CHECK(waits > 0 && sim.clock - before < 1000000000);
	all_requests_are_free();
}

/* The heartbeat does not go on: all requests together wait for less than two seconds. Then it goes on. */
static void a_silent_tool_is_not_waited_for_again(void)
{
	begin();
	sim.in_wait = nobody_answers;
	uint64_t before = sim.clock;
	for (uint32_t i = 0; i < 1000; i++)
		CHECK(!nopal_make_request(&process, NOPAL_REQUEST_LIBRARIES, 0, NOPAL_NO_DESCRIPTOR));
	CHECK(sim.clock - before >= 700000000 && sim.clock - before < 2000000000);
	CHECK(region->unanswered_libraries == 1000);
	region->heartbeat++;
	before = sim.clock;
	CHECK(!nopal_make_request(&process, NOPAL_REQUEST_LIBRARIES, 0, NOPAL_NO_DESCRIPTOR));
	CHECK(sim.clock - before >= 700000000);
	all_requests_are_free();
}

/* Signals end naps early: such naps do not count as time without the tool, and still there is a bound. */
static void request_is_given_up_no_sooner_where_signals_come(void)
{
	for (uint64_t every = 100000; every <= 100000000; every *= 3) {
		begin();
		sim.in_wait = nobody_answers;
		sim.signal_every = every;
		uint64_t before = sim.clock;
		CHECK(!nopal_make_request(&process, NOPAL_REQUEST_LIBRARIES, 0, NOPAL_NO_DESCRIPTOR));
		CHECK(sim.clock - before >= 700000000 && sim.clock - before < 2000000000);
		all_requests_are_free();
	}
}

/* The tool answers at this point only. */
static const char *answered_at;

static void tool_answers_at_point(const char *name)
{
	if (strcmp(name, answered_at))
		return;
	waits = 4;
	tool_answers(&region->bell, region->bell);
}

static void answer_comes_at(const char *point)
{
	begin();
	sim.in_wait = nobody_answers;
	sim.at_race_point = tool_answers_at_point;
	answered_at = point;
	answer = NOPAL_REQUEST_GRANTED;
	CHECK(nopal_make_request(&process, NOPAL_REQUEST_LOCK, 3, NOPAL_NO_DESCRIPTOR));
	CHECK(seen.what == NOPAL_REQUEST_LOCK && seen.word == 3);
	sim.at_race_point = 0;
	all_requests_are_free();
}

/* Before the thread waits, and when it no longer waits: the tool's work counts as done. */
static void answer_comes_early_or_late(void)
{
	answer_comes_at("request made");
	answer_comes_at("waiting over");
}

static void a_request_that_is_made(void)
{
	begin();
	arm();
	nopal_make_request(&process, NOPAL_REQUEST_LIBRARIES, 0, NOPAL_NO_DESCRIPTOR);
}

static void others_can_make_requests(const char *point)
{
	(void)point;
	for (uint32_t i = 0; i < NOPAL_REQUESTS - 1; i++) {
		waits = 0;
		nopal_make_request(&process, NOPAL_REQUEST_EXEC, i, NOPAL_NO_DESCRIPTOR);
		CHECK(seen.what == NOPAL_REQUEST_EXEC && seen.word == i);
	}
}

static void thread_dies_during_its_request(void) { die_at_all_race_points(false, a_request_that_is_made, others_can_make_requests); }

static void handler_that_makes_a_request(void)
{
	uint32_t before = waits;
	waits = 0;
	nopal_make_request(&process, NOPAL_REQUEST_EXEC, 7, NOPAL_NO_DESCRIPTOR);
	waits = before;
}

static void handler_makes_a_request_at_any_point(void)
{
	at_all_race_points(a_request_that_is_made, handler_that_makes_a_request, all_requests_are_free);
}

static void request_does_not_wait_for_a_tool_that_is_gone(void)
{
	begin();
	region->tool_gone = 1;
	nopal_make_request(&process, NOPAL_REQUEST_LIBRARIES, 0, NOPAL_NO_DESCRIPTOR);
	CHECK(waits == 0);
	all_requests_are_free();
}

static void a_place_becomes_free(uint32_t *word, uint32_t value)
{
	region->requests[NOPAL_REQUESTS - 1].state = NOPAL_REQUEST_FREE;
	waits = 0;
	sim.in_wait = tool_answers;
	(void)word;
	(void)value;
}

static void more_requests_than_slots(void)
{
	begin();
	for (uint32_t i = 0; i < NOPAL_REQUESTS; i++)
		region->requests[i].state = NOPAL_REQUEST_CLAIMED;
	sim.in_wait = nobody_answers;
	uint64_t before = sim.clock;
	nopal_make_request(&process, NOPAL_REQUEST_LIBRARIES, 0, NOPAL_NO_DESCRIPTOR);
	CHECK(waits > 0 && sim.clock - before < 1000000000);
	CHECK(region->unanswered_libraries == 1 && region->unanswered_executions == 0);
	sim.in_wait = a_place_becomes_free;
	nopal_make_request(&process, NOPAL_REQUEST_EXEC, 0, NOPAL_NO_DESCRIPTOR);
	CHECK(seen.what == NOPAL_REQUEST_EXEC);
	CHECK(region->unanswered_libraries == 1 && region->unanswered_executions == 0);
	for (uint32_t i = 0; i < NOPAL_REQUESTS - 1; i++)
		region->requests[i].state = NOPAL_REQUEST_FREE;
	all_requests_are_free();
}

static void handler_makes_requests(uint32_t *word, uint32_t value)
{
	(void)word;
	(void)value;
	sim.in_wait = tool_answers;
	nopal_make_request(&process, NOPAL_REQUEST_EXEC, 1, NOPAL_NO_DESCRIPTOR);
	CHECK(seen.what == NOPAL_REQUEST_EXEC || seen.what == NOPAL_REQUEST_LIBRARIES);
}

static void handler_makes_a_request_while_its_thread_does(void)
{
	begin();
	sim.in_wait = handler_makes_requests;
	nopal_make_request(&process, NOPAL_REQUEST_LIBRARIES, 0, NOPAL_NO_DESCRIPTOR);
	CHECK(waits == 5);
	all_requests_are_free();
}

static void quiet_process_makes_requests_without_a_system_call(void)
{
	begin();
	process.quiet = 1;
	uint32_t calls = sim.system_calls;
	nopal_make_request(&process, NOPAL_REQUEST_LIBRARIES, 0, NOPAL_NO_DESCRIPTOR);
	CHECK(sim.system_calls == calls);
	all_requests_are_free();
}

static struct nopal_arguments given(uint64_t a, uint64_t b, uint64_t c)
{
	return (struct nopal_arguments){ { a, b, c } };
}

static void hooks_make_requests(void)
{
	begin();
	struct nopal_arguments arguments = given(0x111, 0x222, 0);
	nopal_before_exec(&arguments);
	CHECK(seen.what == NOPAL_REQUEST_EXEC && seen.word == 0x111 && seen.descriptor == NOPAL_NO_DESCRIPTOR);
	nopal_before_exec_at(&arguments);
	CHECK(seen.word == 0x222 && seen.descriptor == 0x111);
	nopal_before_exec_descriptor(&arguments);
	CHECK(seen.word == 0 && seen.descriptor == 0x111);
	nopal_before_libraries(&arguments);
	CHECK(seen.what == NOPAL_REQUEST_LIBRARIES);
	seen.what = 0;
	uint32_t loader_state = 1;
	process.loader_state = &loader_state;
	nopal_before_libraries(&arguments);
	CHECK(!seen.what);
	loader_state = 0;
	nopal_before_libraries(&arguments);
	CHECK(seen.what == NOPAL_REQUEST_LIBRARIES);
	arguments = given(59, 0x333, 0);
	nopal_before_system_call(&arguments);
	CHECK(seen.what == NOPAL_REQUEST_EXEC && seen.word == 0x333 && seen.descriptor == NOPAL_NO_DESCRIPTOR);
	arguments = given(322, 9, 0x444);
	nopal_before_system_call(&arguments);
	CHECK(seen.what == NOPAL_REQUEST_EXEC && seen.word == 0x444 && seen.descriptor == 9);
	arguments = given(5, 0, 0);
	process.traps.ours[0] = 0x555;
	nopal_before_signal_action(&arguments);
	CHECK(seen.what == NOPAL_REQUEST_TRAPS);
	seen.what = 0;
	arguments = given(13, 5, 0);
	nopal_before_system_call(&arguments);
	CHECK(seen.what == NOPAL_REQUEST_TRAPS);
	waits = 0;
	arguments = given(11, 0, 0);
	nopal_before_signal_action(&arguments);
	arguments = given(5, 0, 0);
	process.traps.ours[0] = 0;
	nopal_before_signal_action(&arguments);
	arguments = given(1, 2, 3);
	nopal_before_system_call(&arguments);
	CHECK(waits == 0 && !process.quiet);
	all_requests_are_free();
}

/* The text that jumps are in is 0x5010 to 0x7000. */
static void writable_text_makes_requests(void)
{
	begin();
	process.blocks[0] = (struct nopal_block){ 0x100, 0x200, 0x180, 0, 0 };
	process.blocks[1] = (struct nopal_block){ 0x200, 0x300, 0x280, 0x5010, 0x7000 };
	process.block_count = 2;
	const struct {
		uint64_t address, bytes, access;
		int32_t pages;
	} calls[] = {
		{ 0x5000, 0x1000, 7, 1 }, { 0x5000, 1, 2, 1 },	    { 0x5000, 0x1001, 6, 2 },
		{ 0x6000, 0x4000, 3, 4 }, { 0, ~0ull, 7, INT32_MAX }, { 0x5000, 0x1000, 5, 0 },
		{ 0x4000, 0x1000, 7, 0 }, { 0x7000, 0x1000, 7, 0 }, { 0x5000, 0, 7, 0 },
	};
	for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
		seen = (struct nopal_request){ 0 };
		waits = 0;
		struct nopal_arguments arguments = given(calls[i].address, calls[i].bytes, calls[i].access);
		nopal_before_protect(&arguments);
		CHECK(seen.what == (calls[i].pages ? NOPAL_REQUEST_TEXT : 0));
		CHECK(seen.descriptor == calls[i].pages && (!seen.what || seen.word == calls[i].address));
	}
	const uint64_t numbers[] = { 10, 329 };
	for (unsigned i = 0; i < 2; i++) {
		struct nopal_arguments arguments = given(numbers[i], 0x5000, 0x1000);
		arguments.integer[3] = 7;
		seen = (struct nopal_request){ 0 };
		waits = 0;
		nopal_before_system_call(&arguments);
		CHECK(seen.what == NOPAL_REQUEST_TEXT && seen.word == 0x5000 && seen.descriptor == 1);
	}
	all_requests_are_free();
}

static void moved_text_makes_requests(void)
{
	begin();
	process.blocks[0] = (struct nopal_block){ 0x200, 0x300, 0x280, 0x5010, 0x7000 };
	process.block_count = 1;
	const struct {
		uint64_t address, bytes, flags;
		int32_t pages;
	} calls[] = {
		{ 0x5000, 0x1000, MREMAP_MAYMOVE, 1 },
		{ 0x6000, 0x2000, MREMAP_MAYMOVE | MREMAP_FIXED, 2 },
		{ 0x6000, 1, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 1 },
		{ 0x5000, 0x1000, 0, 0 },
		{ 0x7000, 0x1000, MREMAP_MAYMOVE, 0 },
	};
	for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
		struct nopal_arguments arguments = given(calls[i].address, calls[i].bytes, 0x10000);
		arguments.integer[3] = calls[i].flags;
		arguments.integer[4] = 0x7000;
		seen = (struct nopal_request){ 0 };
		waits = 0;
		nopal_before_move(&arguments);
		CHECK(seen.what == (calls[i].pages ? NOPAL_REQUEST_TEXT : 0));
		CHECK(seen.descriptor == calls[i].pages && (!seen.what || seen.word == calls[i].address));
	}
	const uint64_t words[][5] = {
		{ 0x5000, 0x1000, 0x1000, MREMAP_MAYMOVE, 0 },
		{ 0x8000, 0x3000, 0x1000, MREMAP_MAYMOVE | MREMAP_FIXED, 0x5000 },
	};
	for (unsigned i = 0; i < 2; i++) {
		struct nopal_arguments arguments = given(25, words[i][0], words[i][1]);
		for (int j = 2; j < 5; j++)
			arguments.integer[j + 1] = words[i][j];
		seen = (struct nopal_request){ 0 };
		waits = 0;
		nopal_before_system_call(&arguments);
		CHECK(seen.what == NOPAL_REQUEST_TEXT && seen.word == 0x5000 && seen.descriptor == 1);
	}
	all_requests_are_free();
}

static void secrecy_makes_requests(void)
{
	begin();
	const uint64_t values[] = { 0, 1 };
	for (unsigned i = 0; i < 2; i++) {
		struct nopal_arguments arguments = given(PR_SET_DUMPABLE, values[i], 0);
		seen = (struct nopal_request){ 0 };
		waits = 0;
		nopal_before_prctl(&arguments);
		CHECK(seen.what == (values[i] ? 0 : NOPAL_REQUEST_SECRET));
	}
	all_requests_are_free();
}

static void text_comes_back(uint32_t *word, uint32_t value)
{
	if (word != &process.text_is_back)
		return;
	CHECK(value == 0);
	if (++waits == 5)
		process.text_is_back = 1;
}

/* A tool that leaves takes the jumps out a little later. */
static void text_is_waited_for_when_the_tool_is_gone(void)
{
	begin();
	process.blocks[0] = (struct nopal_block){ 0x200, 0x300, 0x280, 0x5000, 0x7000 };
	process.block_count = 1;
	region->tool_gone = 1;
	sim.in_wait = text_comes_back;
	struct nopal_arguments arguments = given(0x5000, 0x1000, 7);
	nopal_before_protect(&arguments);
	CHECK(waits == 5);
	sim.in_wait = nobody_answers;
	nopal_before_protect(&arguments);
	CHECK(waits == 5);
	all_requests_are_free();
}

static void text_that_nobody_puts_back_is_waited_for_once(void)
{
	begin();
	process.blocks[0] = (struct nopal_block){ 0x200, 0x300, 0x280, 0x5000, 0x7000 };
	process.block_count = 1;
	region->tool_gone = 1;
	sim.in_wait = nobody_answers;
	uint64_t before = sim.clock;
	struct nopal_arguments arguments = given(0x5000, 0x1000, 7);
	nopal_before_protect(&arguments);
	CHECK(sim.clock - before > 1000000000 && sim.clock - before < 8000000000);
	before = sim.clock;
	nopal_before_protect(&arguments);
	CHECK(sim.clock == before);
	all_requests_are_free();
}

static int answer_of_mlockall;

static int mlockall(int flags)
{
	CHECK(flags == 3);
	return answer_of_mlockall;
}

static void memory_is_locked_by_the_tool_where_the_kernel_does_not(void)
{
	begin();
	answer_of_mlockall = 0;
	CHECK(nopal_lock_all(3, 0, mlockall) == 0 && waits == 0);
	answer_of_mlockall = -1;
	CHECK(nopal_lock_all(3, 0, mlockall) == -1);
	CHECK(seen.what == NOPAL_REQUEST_LOCK && seen.word == 3);
	answer = NOPAL_REQUEST_GRANTED;
	CHECK(nopal_lock_all(3, 0, mlockall) == 0);
	waits = 0;
	process.quiet = 1;
	CHECK(nopal_lock_all(3, 0, mlockall) == -1 && waits == 0);
	all_requests_are_free();
}

enum effect { NOTHING, QUIET, MUTED, QUIET_AND_MUTED };

/* The effect of a call on the process, and on the thread's next event. */
static enum effect effect_of(void (*hook)(struct nopal_arguments *), struct nopal_arguments arguments)
{
	begin();
	hook(&arguments);
	uint32_t reads = sim.clock_reads, calls = sim.system_calls;
	uint32_t event = play(NOPAL_KIND_EXIT, SLOT);
	bool muted = events[event].outcome == NOT_WRAPPED;
	CHECK(!muted || sim.clock_reads == reads);
	CHECK(!process.quiet || sim.system_calls == calls);
	CHECK(lost_events() == muted);
	uint32_t quiet = process.quiet;
	all_requests_are_free();
	return quiet ? muted ? QUIET_AND_MUTED : QUIET : muted ? MUTED : NOTHING;
}

/* An address. */
#define FILTER 0x1000

static const char name[16] = "worker";

/* What the chunk has of a name of which `bytes` bytes are in front of a page that cannot be read. */
static void name_is_noted(const char *text, uint32_t bytes, const char *noted, bool faults)
{
	static _Alignas(SIM_UNREADABLE) char pages[2 * SIM_UNREADABLE];
	char *at = pages + SIM_UNREADABLE - bytes;
	begin();
	sim.unreadable = (uintptr_t)pages + SIM_UNREADABLE;
	__builtin_strcpy(at, text);
	struct nopal_arguments arguments = given(PR_SET_NAME, (uint64_t)at, 0);
	play(NOPAL_KIND_EXIT, SLOT);
	struct nopal_chunk_header *chunk = nopal_chunk_of(nopal_context_get(nopal_process)->position);
	__builtin_memset(chunk->uuid, 0, sizeof chunk->uuid);
	nopal_before_prctl(&arguments);
	CHECK(__builtin_strncmp((const char *)chunk->uuid, noted, sizeof chunk->uuid) == 0);
	CHECK((sim.faults > 0) == faults);
}

static void names_that_threads_give_themselves_are_in_their_chunks(void)
{
	name_is_noted("worker", 100, "worker", false);
	name_is_noted("worker", sizeof "worker", "worker", false);
	/* The kernel cuts a name, and reads no further. */
	name_is_noted("a worker of many", 15, "a worker of man", false);
	/* The call fails. */
	name_is_noted("worker", sizeof "worker" - 1, "", true);
}

static void hooks_silence(void)
{
	CHECK(effect_of(nopal_before_prctl, given(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0)) == QUIET_AND_MUTED);
	CHECK(effect_of(nopal_before_prctl, given(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, FILTER)) == QUIET);
	CHECK(effect_of(nopal_before_prctl, given(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0)) == NOTHING);
	CHECK(effect_of(nopal_before_prctl, given(PR_SET_TSC, PR_TSC_SIGSEGV, 0)) == MUTED);
	CHECK(effect_of(nopal_before_prctl, given(PR_SET_TSC, PR_TSC_ENABLE, 0)) == NOTHING);
	CHECK(effect_of(nopal_before_prctl, given(PR_SET_NAME, (uint64_t)name, 0)) == NOTHING);
	CHECK(effect_of(nopal_before_seccomp, given(SECCOMP_SET_MODE_STRICT, 0, 0)) == QUIET_AND_MUTED);
	CHECK(effect_of(nopal_before_seccomp, given(SECCOMP_SET_MODE_FILTER, 0, FILTER)) == QUIET);
	CHECK(effect_of(nopal_before_seccomp, given(SECCOMP_SET_MODE_FILTER, 0, 0)) == NOTHING);
	CHECK(effect_of(nopal_before_seccomp, given(SECCOMP_SET_MODE_STRICT, 1, 0)) == NOTHING);
	CHECK(effect_of(nopal_before_seccomp, given(SECCOMP_GET_ACTION_AVAIL, 0, 0)) == NOTHING);
	CHECK(effect_of(nopal_before_system_call, given(157, PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) == QUIET_AND_MUTED);
	CHECK(effect_of(nopal_before_system_call, given(157, PR_SET_TSC, PR_TSC_SIGSEGV)) == MUTED);
	CHECK(effect_of(nopal_before_system_call, given(317, SECCOMP_SET_MODE_FILTER, 0)) == NOTHING);
	CHECK(effect_of(nopal_before_system_call, given(317, SECCOMP_SET_MODE_STRICT, 1)) == NOTHING);
	CHECK(effect_of(nopal_before_system_call, given(39, 0, 0)) == NOTHING);
}

const struct test request_tests[] = {
	{ "request_is_answered", request_is_answered },
	{ "place_is_taken_by_another", place_is_taken_by_another },
	{ "request_is_given_up", request_is_given_up },
	{ "request_is_given_up_no_sooner_where_signals_come", request_is_given_up_no_sooner_where_signals_come },
	{ "answer_comes_early_or_late", answer_comes_early_or_late },
	{ "thread_dies_during_its_request", thread_dies_during_its_request },
	{ "handler_makes_a_request_at_any_point", handler_makes_a_request_at_any_point },
	{ "a_silent_tool_is_not_waited_for_again", a_silent_tool_is_not_waited_for_again },
	{ "request_does_not_wait_for_a_tool_that_is_gone", request_does_not_wait_for_a_tool_that_is_gone },
	{ "more_requests_than_slots", more_requests_than_slots },
	{ "handler_makes_a_request_while_its_thread_does", handler_makes_a_request_while_its_thread_does },
	{ "quiet_process_makes_requests_without_a_system_call", quiet_process_makes_requests_without_a_system_call },
	{ "hooks_make_requests", hooks_make_requests },
	{ "writable_text_makes_requests", writable_text_makes_requests },
	{ "moved_text_makes_requests", moved_text_makes_requests },
	{ "secrecy_makes_requests", secrecy_makes_requests },
	{ "text_is_waited_for_when_the_tool_is_gone", text_is_waited_for_when_the_tool_is_gone },
	{ "text_that_nobody_puts_back_is_waited_for_once", text_that_nobody_puts_back_is_waited_for_once },
	{ "memory_is_locked_by_the_tool_where_the_kernel_does_not",
	  memory_is_locked_by_the_tool_where_the_kernel_does_not },
	{ "names_that_threads_give_themselves_are_in_their_chunks",
	  names_that_threads_give_themselves_are_in_their_chunks },
	{ "hooks_silence", hooks_silence },
	{ 0, 0 },
};
