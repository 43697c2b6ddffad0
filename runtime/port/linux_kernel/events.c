// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The scheduler's tracepoints as markers of this module. Each is joined while its marker is on. They record with the
 * queue of a processor locked, so nothing here may wake a task.
 */
#include <linux/sched.h>
#include "kernels.h"
#include "latency_trace.h"
#include "module.h"
#include "nopal.h"

/* Those of the code that passed the tracepoint. */
static void read_flags(char flags[NOPAL_FLAGS_BYTES])
{
	nopal_flags_write(flags, preempt_count() - NOPAL_PREEMPTION_OF_TRACEPOINTS, raw_irqs_disabled(), test_tsk_need_resched(current));
}

static void at_switch(NOPAL_SWITCH_PARAMETERS)
{
	uint32_t of_task = __task_state_index(NOPAL_SWITCH_STATE, previous->exit_state);
	char flags[NOPAL_FLAGS_BYTES], letter[] = { preempt ? 'R' : task_index_to_char(of_task), 0 };
	read_flags(flags);
	NOPAL_MARK(sched_switch, "prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s next_comm=%s next_pid=%d next_prio=%d flags=%s",
		   previous->comm, previous->pid, previous->prio, letter, next->comm, next->pid, next->prio, flags);
}

static void at_wakeup(void *unused, struct task_struct *task)
{
	char flags[NOPAL_FLAGS_BYTES];
	read_flags(flags);
	NOPAL_MARK(sched_wakeup, "comm=%s pid=%d prio=%d target_cpu=%d flags=%s", task->comm, task->pid, task->prio,
		   (int)task_cpu(task), flags);
}

static void at_wakeup_new(void *unused, struct task_struct *task)
{
	char flags[NOPAL_FLAGS_BYTES];
	read_flags(flags);
	NOPAL_MARK(sched_wakeup_new, "comm=%s pid=%d prio=%d target_cpu=%d flags=%s", task->comm, task->pid, task->prio,
		   (int)task_cpu(task), flags);
}

/* Under nopal_lock, as what is joined of them. */
static struct nopal_tracepoint points[] = {
	{ "sched_switch", at_switch },
	{ "sched_wakeup", at_wakeup },
	{ "sched_wakeup_new", at_wakeup_new },
};

void nopal_event_switch(const char *name, bool on)
{
	static bool joined[ARRAY_SIZE(points)];
	for (uint32_t i = 0; i < ARRAY_SIZE(points); i++) {
		if (strcmp(points[i].name, name) || joined[i] == on)
			continue;
		joined[i] = on && !nopal_tracepoints_join(&points[i], 1);
		if (!on)
			nopal_tracepoints_leave(&points[i], 1);
	}
}
