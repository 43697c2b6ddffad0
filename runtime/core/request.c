/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Requests to the tool, and waiting for it. A thread waits only while the tool's heartbeat goes on, and never longer
 * than a bound: a tool that is stopped or lost costs each request a fraction of a second, unless a guardian has told.
 */
#include "arch.h"
#include "core.h"
#include "port.h"

/* A step is a nap of 50 us, or spinning for about as long if no system call is allowed. Naps become longer, since
 * thousands of threads may wait; changing the word wakes them. The length of a nap that ended early, as by a signal, is
 * not known: it counts as one step, and naps become shorter until one is whole. So at least about half of the time
 * counts. All of it counts if no nap ends early, and more than has passed if naps end in less than a step. */
#define NAP_NANOSECONDS 50000
#define LONGEST_NAP 400
#define SPINS_A_STEP 1000
#define YIELDS_FIRST 16
/* 0.8 s: the kernel holds up a writer to a slow disk for 0.2 s at a time, and a hypervisor takes processors away. */
#define STEPS_WITHOUT_HEARTBEAT 16000
#define STEPS_AT_MOST 100000

/* Half as long as the last time for a heartbeat that has stood still since: a tool and a guardian that were both killed
 * cost a program twice the time in all, however often it asks, and a tool that was only held up is waited for again. */
static uint32_t steps_without_heartbeat(const struct nopal_region *region, uint32_t heartbeat)
{
	if (__atomic_load_n(&region->silent_since, __ATOMIC_RELAXED) != heartbeat)
		return STEPS_WITHOUT_HEARTBEAT;
	uint32_t silences = __atomic_load_n(&region->silences, __ATOMIC_RELAXED);
	return silences < 32 ? STEPS_WITHOUT_HEARTBEAT >> silences : 0;
}

static void count_silence(struct nopal_region *region, uint32_t heartbeat)
{
	if (__atomic_exchange_n(&region->silent_since, heartbeat, __ATOMIC_RELAXED) != heartbeat)
		__atomic_store_n(&region->silences, 0, __ATOMIC_RELAXED);
	__atomic_add_fetch(&region->silences, 1, __ATOMIC_RELAXED);
}

static void nap(struct nopal_process *process, struct nopal_patience *patience, uint32_t *word, uint32_t value)
{
	uint32_t steps = 1;
	if (process->quiet)
		for (int i = 0; i < SPINS_A_STEP; i++)
			arch_pause();
	else if (patience->steps < YIELDS_FIRST)
		port_yield();
	else {
		uint32_t nap = patience->nap ? patience->nap : 1;
		bool is_whole = port_wait(word, value, (uint64_t)nap * NAP_NANOSECONDS);
		steps = is_whole ? nap : 1;
		nap = is_whole ? nap * 2 : nap / 2;
		patience->nap = nap < LONGEST_NAP ? nap : LONGEST_NAP;
	}
	patience->steps += steps;
}

bool nopal_wait_step(struct nopal_process *process, struct nopal_patience *patience, uint32_t *word, uint32_t value)
{
	struct nopal_region *region = process->region;
	uint32_t heartbeat = __atomic_load_n(&region->heartbeat, __ATOMIC_RELAXED);
	if (heartbeat != patience->heartbeat) {
		patience->heartbeat = heartbeat;
		patience->heard = patience->steps;
	}
	if (patience->steps >= STEPS_AT_MOST || __atomic_load_n(&region->tool_gone, __ATOMIC_RELAXED))
		return false;
	if (patience->steps - patience->heard > steps_without_heartbeat(region, heartbeat)) {
		count_silence(region, heartbeat);
		return false;
	}
	nap(process, patience, word, value);
	return true;
}

void nopal_wait_for_text(struct nopal_process *process)
{
	struct nopal_patience patience = { 0 };
	while (!__atomic_load_n(&process->text_is_back, __ATOMIC_ACQUIRE))
		if (patience.steps < STEPS_AT_MOST)
			nap(process, &patience, &process->text_is_back, 0);
		else
			__atomic_store_n(&process->text_is_back, 1, __ATOMIC_RELAXED);
}

static struct nopal_request *claim(struct nopal_region *region)
{
	for (uint32_t i = 0; i < NOPAL_REQUESTS; i++) {
		uint32_t *state = &region->requests[i].state;
		uint32_t free = __atomic_load_n(state, __ATOMIC_RELAXED);
		uint32_t claimed = free + NOPAL_REQUEST_TAKEN + NOPAL_REQUEST_CLAIMED;
		if ((free & NOPAL_REQUEST_STATE) == NOPAL_REQUEST_FREE &&
		    __atomic_compare_exchange_n(state, &free, claimed, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return &region->requests[i];
	}
	return 0;
}

/* There was no answer: the tool does not see what the thread does next. */
static void count_unanswered(struct nopal_region *region, uint32_t what)
{
	if (what == NOPAL_REQUEST_EXEC)
		__atomic_add_fetch(&region->unanswered_executions, 1, __ATOMIC_RELAXED);
	if (what == NOPAL_REQUEST_LIBRARIES)
		__atomic_add_fetch(&region->unanswered_libraries, 1, __ATOMIC_RELAXED);
}

bool nopal_make_request(struct nopal_process *process, uint32_t what, uint64_t word, int32_t descriptor)
{
	struct nopal_region *region = process->region;
	struct nopal_patience patience = { 0 };
	struct nopal_request *request = claim(region);
	while (!request && nopal_wait_step(process, &patience, &region->bell, region->bell))
		request = claim(region);
	if (!request) {
		count_unanswered(region, what);
		return false;
	}
	port_race_point("request claimed");
	uint32_t free = __atomic_load_n(&request->state, __ATOMIC_RELAXED) & ~NOPAL_REQUEST_STATE;
	uint32_t waiting = free + NOPAL_REQUEST_WAITING;
	request->what = what;
	request->word = word;
	request->descriptor = descriptor;
	request->process = process->quiet ? process->process : port_process_id();
	request->thread = process->quiet ? 0 : port_thread_id();
	__atomic_store_n(&request->state, waiting, __ATOMIC_RELEASE);
	port_race_point("request made");
	__atomic_add_fetch(&region->bell, 1, __ATOMIC_RELEASE);
	if (!process->quiet)
		port_wake(&region->bell);

	patience = (struct nopal_patience){ 0 };
	while (__atomic_load_n(&request->state, __ATOMIC_ACQUIRE) == waiting &&
	       nopal_wait_step(process, &patience, &request->state, waiting))
		;
	port_race_point("waiting over");
	/* Where a signal handler has forked meanwhile, two processes come here, and the second finds the place free, or
	 * another's. */
	uint32_t answer = __atomic_load_n(&request->state, __ATOMIC_ACQUIRE);
	while ((answer & ~NOPAL_REQUEST_STATE) == free &&
	       !__atomic_compare_exchange_n(&request->state, &answer, free, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	if (answer == free + NOPAL_REQUEST_GRANTED)
		return true;
	if (answer != free + NOPAL_REQUEST_DONE)
		count_unanswered(region, what);
	return false;
}
