// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The host that core needs, in a kernel: a context for each processor, and the stack and the task of an event.
 *
 * A processor's context knows the stack of one task, or one page of another stack: an interrupt's, say. An event
 * outside of it takes the slow path, which finds out whose stack it is on. A switch of tasks drops the range, since a
 * stack that is free may become another task's.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include "kernels.h"
#include "module.h"
#include "port.h"

#define RECORD_BYTES 8ull
#define SIZE_AT_MOST 40

/* The part of struct nopal_context before `slots`, which are for limits of depth. */
DEFINE_PER_CPU_ALIGNED(uint8_t[NOPAL_CONTEXT_SLOTS], nopal_cpu);
/* The task that a processor is about to run: for a while it is on its stack already, and not yet `current`. */
static DEFINE_PER_CPU(struct task_struct *, next_task);

struct nopal_process nopal_kernel;    /* changed while nothing is recorded */
struct nopal_process *const volatile nopal_process = &nopal_kernel;
static uint64_t region_bytes;
/* Guards both, and the number of mappings, against threads that map the region. */
static DEFINE_MUTEX(region_lock);
static atomic_t mappings = ATOMIC_INIT(0);

static bool running;                    /* by WRITE_ONCE, under nopal_lock */
/* The same: the processors on which anything is recorded. */
static struct cpumask processors = CPU_MASK_ALL;
/* The same: whether only some tasks are recorded, and those that they start. */
static bool watching, watching_children;
/* A bit for the number of each process and task that is watched. */
static unsigned long *watched;          /* by atomic operations; made and freed with the module */

static struct nopal_context *here(void)
{
	return (struct nopal_context *)this_cpu_ptr(nopal_cpu);
}

static bool is_on_stack(const struct task_struct *task, uint64_t slot)
{
	return task && slot - (uint64_t)READ_ONCE(task->stack) < THREAD_SIZE;
}

/* ---- what core asks for ---- */

uint64_t port_clock(void)
{
	return rdtsc_ordered();
}

struct nopal_context *nopal_context_get(struct nopal_process *process)
{
	return here();
}

bool nopal_context_is_own(struct nopal_process *process, const struct nopal_context *context)
{
	return true;
}

void nopal_count_lost(struct nopal_process *process, uint32_t reason)
{
	nopal_region_lose(process->region, raw_smp_processor_id(), reason, 1);
}

bool port_read(uint64_t address, void *to, uint32_t bytes)
{
	if (address < TASK_SIZE_MAX)
		return !copy_from_user_nofault(to, (const void __user *)address, bytes);
	return !copy_from_kernel_nofault(to, (const void *)address, bytes);
}

/* No event waits in a kernel. */
bool nopal_wait_step(struct nopal_process *process, struct nopal_patience *patience, uint32_t *word, uint32_t value)
{
	return false;
}

/* Gives the context to the task whose stack it is; on another stack, to the task that was interrupted. */
enum nopal_stack nopal_stack_reach(struct nopal_process *process, struct nopal_range *range, uint64_t slot)
{
	struct nopal_context *context = here();
	struct task_struct *task = current, *next = this_cpu_read(next_task);
	struct nopal_range known = *range;
	if (!is_on_stack(task, slot) && is_on_stack(next, slot))
		task = next;
	if (is_on_stack(task, slot))
		*range = (struct nopal_range){ (uint64_t)task->stack, THREAD_SIZE };
	else
		*range = (struct nopal_range){ slot & PAGE_MASK, PAGE_SIZE };
	context->process = task->tgid;
	context->thread = task->pid;
	return range->low == known.low && range->span == known.span ? NOPAL_STACK_SAME : NOPAL_STACK_ANOTHER;
}

/* ---- whose events are recorded ---- */

static bool is_watched(const struct task_struct *task)
{
	return test_bit(task->tgid, watched) || test_bit(task->pid, watched);
}

static bool is_wanted(const struct task_struct *task)
{
	return !READ_ONCE(watching) || is_watched(task);
}

static bool runs_here(void)
{
	return READ_ONCE(running) && cpumask_test_cpu(raw_smp_processor_id(), &processors);
}

int nopal_prepare_here(uint64_t slot, uint32_t word, uint32_t bytes);
int nopal_prepare_here(uint64_t slot, uint32_t word, uint32_t bytes)
{
	struct task_struct *next = this_cpu_read(next_task);
	struct task_struct *task = is_on_stack(next, slot) ? next : current;
	if (!runs_here() || !is_wanted(task))
		return 1;
	return nopal_prepare(slot, word, bytes);
}

bool nopal_context_wants(void)
{
	return runs_here() && is_wanted(current);
}

/* If neither a task nor the one before it or after it is wanted, none of its events gets as far as
 * nopal_prepare_here. */
DEFINE_PER_CPU(uint8_t, nopal_wanted);

static void forget_here(void *unused)
{
	this_cpu_write(nopal_wanted, runs_here() && is_wanted(current));
	nopal_range_forget_any(here());
}

void nopal_context_run(bool on)
{
	WRITE_ONCE(running, on);
	on_each_cpu(forget_here, 0, 1);
}

void nopal_context_watch(const uint32_t *ids, uint32_t count, bool children)
{
	/* While the list changes, nothing is recorded. */
	bool was_running = running;
	nopal_context_run(false);
	bitmap_zero(watched, PID_MAX_LIMIT);
	for (uint32_t i = 0; i < count; i++)
		if (ids[i] < PID_MAX_LIMIT)
			set_bit(ids[i], watched);
	WRITE_ONCE(watching, count);
	WRITE_ONCE(watching_children, children);
	nopal_context_run(was_running);
}

void nopal_context_run_on(const struct cpumask *wanted)
{
	bool was_running = running;
	nopal_context_run(false);
	cpumask_copy(&processors, wanted);
	nopal_context_run(was_running);
}

const struct cpumask *nopal_context_processors(void)
{
	return &processors;
}

static uint64_t lost_in(uint32_t counter)
{
	return READ_ONCE(nopal_kernel.region->lost[counter].lost[NOPAL_LOST_ALL]);
}

uint64_t nopal_context_lost(void)
{
	uint64_t sum = 0;
	for (uint32_t counter = 0; counter < NOPAL_LOST_COUNTERS; counter++)
		sum += lost_in(counter);
	return sum;
}

void nopal_context_show_lost(struct seq_file *file)
{
	seq_printf(file, "# lost %llu\n", nopal_context_lost());
	for (uint32_t counter = 0; counter < NOPAL_LOST_COUNTERS; counter++) {
		if (!lost_in(counter))
			continue;
		seq_printf(file, "# lost on processor %u", counter);
		for (uint32_t other = counter + NOPAL_LOST_COUNTERS; other < nr_cpu_ids; other += NOPAL_LOST_COUNTERS)
			seq_printf(file, ", %u", other);
		seq_printf(file, ": %llu\n", lost_in(counter));
	}
}

/* ---- switches of tasks ---- */

static void at_switch(NOPAL_SWITCH_PARAMETERS)
{
	this_cpu_write(next_task, next);
	this_cpu_write(nopal_wanted, runs_here() && (is_wanted(previous) || is_wanted(next)));
	nopal_range_forget_any(here());
}

/* Before the child first runs. */
static void at_fork(void *unused, struct task_struct *parent, struct task_struct *child)
{
	if (READ_ONCE(watching_children) && is_watched(parent))
		set_bit(child->pid, watched);
}

/* Its number may belong to another task from now on. */
static void at_free(void *unused, struct task_struct *task)
{
	if (READ_ONCE(watching_children))
		clear_bit(task->pid, watched);
}

static struct nopal_tracepoint points[] = {
	{ "sched_switch", at_switch },
	{ "sched_process_fork", at_fork },
	{ "sched_process_free", at_free },
};

/* ---- the region ---- */

static void begin_here(void *unused)
{
	struct nopal_context *context = here();
	memset(context, 0, NOPAL_CONTEXT_SLOTS);
	/* Identifies the processor: the tool knows its chunks by this. */
	context->begin = (rdtsc() & ~0xffffull) | raw_smp_processor_id();
	context->waiting = 1;
}

/* Allocates a region. Core finds a chunk by the address of a record in it. */
static struct nopal_region *region_of(uint32_t chunks, uint64_t *bytes)
{
	uint64_t states = ALIGN(sizeof(struct nopal_region), 64);
	uint64_t first = ALIGN(states + 4ull * chunks, PAGE_SIZE);
	*bytes = first + ((uint64_t)chunks + 1) * NOPAL_CHUNK_BYTES;
	struct nopal_region *region = vmalloc_user(*bytes);
	if (!region)
		return 0;
	first += -((uint64_t)region + first) & (NOPAL_CHUNK_BYTES - 1);
	*region = (struct nopal_region){
		.version = NOPAL_ABI_VERSION,
		.chunk_count = chunks,
		.state_offset = states,
		.chunk_offset = first,
		.freed = 1,
	};
	return region;
}

static void use(struct nopal_region *region, uint64_t bytes)
{
	region_bytes = bytes;
	nopal_kernel.state_offset = region->state_offset;
	nopal_kernel.chunk_offset = region->chunk_offset;
	nopal_kernel.chunk_limit = region->chunk_count;
	nopal_kernel.region = region;
	on_each_cpu(begin_here, 0, 1);
}

uint32_t nopal_context_size(void)
{
	return ilog2((uint64_t)nopal_kernel.chunk_limit * NOPAL_CHUNK_BYTES / RECORD_BYTES);
}

/*
 * 1. the new region
 * 2. nothing is recorded any more
 * 3. all processors that have reserved room in the old region have stored there
 * 4. the new region is used, the old one freed
 */
int nopal_context_resize(uint32_t size)
{
	uint64_t bytes;
	if (size == nopal_context_size())
		return 0;
	if (size > SIZE_AT_MOST || (RECORD_BYTES << size) / PAGE_SIZE > totalram_pages() / 4)
		return -ENOMEM;
	uint32_t chunks = (RECORD_BYTES << size) / NOPAL_CHUNK_BYTES;
	if (chunks < 2 * num_possible_cpus())
		return -ERANGE;
	struct nopal_region *region = region_of(chunks, &bytes), *old = region;
	if (!region)
		return -ENOMEM;
	bool was_running = running;
	mutex_lock(&region_lock);
	bool is_free = !atomic_read(&mappings);
	if (is_free) {
		nopal_context_run(false);
		nopal_wait_for_tasks();
		old = nopal_kernel.region;
		memcpy(region->lost, old->lost, sizeof region->lost);
		use(region, bytes);
		nopal_context_run(was_running);
	}
	mutex_unlock(&region_lock);
	vfree(old);
	return is_free ? 0 : -EBUSY;
}

int nopal_context_hold(void)
{
	mutex_lock(&region_lock);
	if (!atomic_read(&mappings))
		return 0;
	mutex_unlock(&region_lock);
	return -EBUSY;
}

void nopal_context_let_go(void)
{
	mutex_unlock(&region_lock);
}

uint64_t nopal_context_position(void)
{
	return READ_ONCE(here()->position);
}

static void at_map(struct vm_area_struct *area)
{
	atomic_inc(&mappings);
}

static void at_unmap(struct vm_area_struct *area)
{
	atomic_dec(&mappings);
}

static const struct vm_operations_struct mapped = { .open = at_map, .close = at_unmap };

/* What the tool finds in the header was lost before its recording, and what a later chunk's has more in it. */
static void tell_lost_here(void *unused)
{
	struct nopal_context *context = here();
	if (context->position)
		nopal_chunk_of(context->position)->discarded = context->discarded;
	else
		context->discarded = 0;
}

int nopal_context_map(struct vm_area_struct *area)
{
	mutex_lock(&region_lock);
	int failed = -EINVAL;
	if (!area->vm_pgoff && vma_pages(area) * PAGE_SIZE <= region_bytes)
		failed = remap_vmalloc_range(area, nopal_kernel.region, 0);
	if (!failed) {
		area->vm_ops = &mapped;
		atomic_inc(&mappings);
		on_each_cpu(tell_lost_here, 0, 1);
	}
	mutex_unlock(&region_lock);
	return failed;
}

bool nopal_context_is_mapped(void)
{
	return atomic_read(&mappings);
}

int nopal_context_begin(uint32_t chunks)
{
	uint64_t bytes;
	struct nopal_region *region = region_of(chunks, &bytes);
	watched = vzalloc(PID_MAX_LIMIT / 8);
	int failed = -ENOMEM;
	if (region && watched) {
		use(region, bytes);
		failed = nopal_tracepoints_join(points, ARRAY_SIZE(points));
	}
	if (failed) {
		vfree(region);
		vfree(watched);
	}
	return failed;
}

void nopal_context_end(void)
{
	nopal_tracepoints_leave(points, ARRAY_SIZE(points));
	vfree(nopal_kernel.region);
	vfree(watched);
}
