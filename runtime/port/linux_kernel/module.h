/* SPDX-License-Identifier: MIT OR GPL-2.0
 *
 * The functions and variables that the module's parts offer each other.
 */
#ifndef NOPAL_MODULE_H
#define NOPAL_MODULE_H

#include <linux/module.h>
#include <linux/seq_file.h>
#include <asm/insn.h>
#include "core.h"
#include "slots.h"

/* ---- symbols.c: functions of the kernel that it does not export ---- */

/* Each is called through a gate of our own (slots.S). */
struct nopal_symbols {
	int (*size_offset)(unsigned long address, unsigned long *size, unsigned long *offset);
	const char *(*name)(unsigned long address, unsigned long *size, unsigned long *offset, char **module, char *buffer);
	int (*decode)(struct insn *instruction, const void *bytes, int length, enum insn_mode mode);
	unsigned long (*ftrace_location)(unsigned long address);
	struct module *(*module_at)(unsigned long address);     /* with preemption off */
	int (*alternatives_hold)(void *first, void *last);      /* 0: this kernel changes none after its start */
	bool (*probes_refuse)(unsigned long address);
	struct kprobe *(*probe_at)(void *address);
	int (*is_text)(unsigned long address);
	bool (*shows_addresses)(const struct cred *who);        /* by kptr_restrict and CAP_SYSLOG */
	/* With cpus_read_lock held, which comes before text_mutex. */
	int (*stop_machine)(int (*run)(void *), void *argument, const struct cpumask *processors);
	void (*wait_for_tasks_rude)(void);      /* 0: this kernel has none */
	unsigned long (*find)(const char *);    /* the kernel's own function */
	struct mutex *text_mutex;
	struct mutex *module_mutex;
	struct list_head *modules;              /* all of them, while module_mutex is held */
	void *each_of_kernel, *each_of_modules;     /* for nopal_each_symbol */
};
extern struct nopal_symbols nopal_symbols;      /* written at load alone */

/* Finds the functions. -ENOENT: this kernel lacks one. */
int nopal_symbols_find(void);

/* NOPAL_SLOT_BYTES in the module's text, never taken back; 0: there is no more. */
uint8_t *nopal_gate(void);

/* ---- text.c: changes of text ---- */

#define NOPAL_SITE_BYTES 5

#define NOPAL_CHANGE_BYTES 12
/* A prefix without effect, as often as needed before a call of 5 bytes. */
#define NOPAL_CALL_PREFIX 0x2e

struct nopal_change {
	unsigned long address;
	uint8_t length;                 /* at most NOPAL_CHANGE_BYTES */
	bool done;                      /* false: other bytes stood there, and were left alone */
	uint8_t kind;                   /* of the caller */
	uint8_t before[NOPAL_CHANGE_BYTES], after[NOPAL_CHANGE_BYTES];
};

/* Changes instructions that may be running: a return or a jump, or an instruction that sections.c looks for and the
 * call in its place. No instruction may begin within the new one that did not begin there before. The changes are in
 * order of their addresses; for more than a few, all processors stop for each batch. Sleeps. */
int nopal_text_change(struct nopal_change *changes, uint32_t count);

/* Writes a slot or a gate that nothing leads to yet. Sleeps. */
int nopal_text_fill(void *slots, const void *bytes, uint32_t count);

int nopal_text_begin(void);
void nopal_text_end(void);

/* The longest stop of all processors so far, in nanoseconds. */
extern uint64_t nopal_text_longest_stop;        /* under nopal_lock */

/* ---- tracepoints.c: the kernel's own tracepoints ---- */

struct nopal_tracepoint {
	const char *name;
	void *probe;
	struct tracepoint *point;       /* found by its name when it is joined */
};

/* Connects each tracepoint to its probe, or none. -ENOENT: this kernel lacks one. Sleeps. */
int nopal_tracepoints_join(struct nopal_tracepoint *points, uint32_t count);
/* Afterwards no probe runs, also where they could not be joined. Sleeps. */
void nopal_tracepoints_leave(struct nopal_tracepoint *points, uint32_t count);

/* ---- events.c: the kernel's tracepoints as markers of this module ---- */

/* Under nopal_lock. Joins the tracepoint of the marker with this name, or leaves it. Sleeps. */
void nopal_event_switch(const char *name, bool on);

/* ---- context.c: the host that core needs ---- */

int nopal_context_begin(uint32_t chunks);
void nopal_context_end(void);
extern struct nopal_process nopal_kernel;       /* changed while nothing is recorded */

/* The buffer has room for two to this power of records. */
uint32_t nopal_context_size(void);
/* Changes that power. -ERANGE: too small; -ENOMEM: too large; -EBUSY: the buffer is mapped. Sleeps. */
int nopal_context_resize(uint32_t size);
/* Maps the region into a tool. */
int nopal_context_map(struct vm_area_struct *area);
bool nopal_context_is_mapped(void);
/* Keeps the region as it is, for readers in the kernel. -EBUSY: it is mapped. Sleeps. */
int nopal_context_hold(void);
void nopal_context_let_go(void);
/* The position of this processor's next record; 0: it has no chunk. */
uint64_t nopal_context_position(void);

/* The first begins or ends recording; the second selects its tasks: all, if none are given. */
void nopal_context_run(bool on);
void nopal_context_watch(const uint32_t *ids, uint32_t count, bool children);
/* On which processors: all (cpu_all_mask), or some. */
void nopal_context_run_on(const struct cpumask *processors);
const struct cpumask *nopal_context_processors(void);
uint64_t nopal_context_lost(void);
/* How many, and on which processors; where there are more than NOPAL_LOST_COUNTERS, some share a counter. */
void nopal_context_show_lost(struct seq_file *file);
/* Whether an event on this processor and in this task is to be recorded. With preemption off. */
bool nopal_context_wants(void);

/* ---- held.c ---- */

/* Whether the kernel itself changes text in [first, last]. */
bool nopal_is_held(unsigned long first, unsigned long last);
/* Whether a processor that meets a breakpoint calls the function: a breakpoint in it would lead to itself. */
bool nopal_is_of_breakpoints(unsigned long address);
int nopal_held_begin(unsigned long (*find)(const char *));
void nopal_held_end(void);

/* ---- plan.c ---- */

/* Takes the tool's plan; the caller holds nopal_lock. -EAGAIN: modules have come since the kernel was read for it. */
int nopal_plan_take(struct nopal_device_plan *plan);

/* ---- functions.c: the functions of all plans ---- */

struct nopal_function {
	unsigned long address, end;
	unsigned long site;             /* ftrace's */
	uint32_t first_exit, exits;
	uint32_t wanted;                /* by how many traces that are on */
	uint8_t verdict;                /* NOPAL_VERDICT_* */
	uint8_t present;                /* something of it is changed: it records, or comes on, or goes */
	uint8_t entered;                /* its entry leads to the recorder */
	uint8_t going;                  /* its module is being unloaded */
};

struct nopal_exit {
	unsigned long address, target;
	uint8_t kind;
	uint8_t before[NOPAL_SITE_BYTES];
	uint8_t set;
};

/* In order of the plans; the site number of each is its index plus one. Under nopal_lock. */
extern struct nopal_function *nopal_functions;
extern uint32_t nopal_function_count;
extern struct nopal_exit *nopal_exits;
extern uint32_t nopal_exit_count;
extern struct nopal_device_modules nopal_modules;

/* The function that begins at an address and is traced; 0: none. */
struct nopal_function *nopal_function_at(unsigned long address);
/* Makes nopal_function_at find the function with this index, and makes room for its word. -EBUSY: another function's
 * entry is so near that the two would be confused. */
int nopal_function_know(uint32_t index);
/* Makes room for more functions and exits. */
int nopal_functions_reserve(uint32_t functions, uint32_t exits);

/* Brings the text into the wanted state. Sleeps. */
int nopal_functions_reconcile(void);
bool nopal_function_records(const struct nopal_function *function);
/* Records arguments and results of all functions, or no longer. -EBUSY: a foreign breakpoint is at an exit, and nothing
 * has changed. Sleeps. */
int nopal_functions_arguments(bool on);
bool nopal_functions_have_arguments(void);
/* Begins or ends the recording of all functions, also of those that nobody wants. Sleeps. */
int nopal_functions_uniform(bool on);
bool nopal_functions_are_uniform(void);
/* Records an entry that does not happen, if the function records. */
void nopal_function_simulate(const struct nopal_function *function);
int nopal_functions_begin(void);
void nopal_functions_end(void);

/* Waits until no task is in code that nothing leads to any more. */
void nopal_wait_for_tasks(void);

/* ---- traces.c: the control language ---- */

extern struct mutex nopal_lock;         /* guards functions, exits, traces */

/* Executes a line. On failure, `error` says why. */
int nopal_command(const char *line, uint32_t length, char *error, size_t room);
/* As the command `reset`. */
int nopal_traces_reset(char *error, size_t room);
/* Adds the functions of a plan, from the index `first` on, to the traces whose locations name them. Sleeps. */
int nopal_traces_extend(uint32_t first);
void nopal_traces_show(struct seq_file *file);
void nopal_traces_end(void);

/* ---- markers.c: markers of modules ---- */

struct nopal_description;
struct nopal_device_markers;

/* Under nopal_lock. Begins or ends the recording of the markers with a name, also of those that come later. */
int nopal_markers_switch(const char *name, uint32_t length, bool on);
void nopal_markers_reset(void);
/* Has the markers that match a pattern recorded while no recording has the buffer, unless a name is off; 0: none. */
void nopal_markers_trace(const char *pattern);
/* The marker of an event, and the types of its values. `is_own`: one of events.c. 0: there is none. */
const struct nopal_description *nopal_marker_of(uint32_t event, const uint32_t **types, bool *is_own);
void nopal_markers_show(struct seq_file *file);
/* Tells the tool of all markers. */
int nopal_markers_tell(struct nopal_device_markers *wanted);
int nopal_markers_begin(void);
void nopal_markers_end(void);

/* A new event with so many values; 0: no number is left. */
uint64_t nopal_event_next(uint32_t values, bool has_text);

/* ---- probes.c: probes at instructions ---- */

struct nopal_device_probe;

/* Under nopal_lock. The errors of register_kprobe, and -EEXIST: there is one of this name. */
int nopal_probe_make(struct nopal_device_probe *wanted);
/* Makes a probe of the kernel's own text again, by the command that made it. -ENOENT: it has not been there. */
int nopal_probe_again(const char *command, uint32_t length);
/* -ENOENT: there is none of this name. */
int nopal_probe_switch(const char *name, uint32_t length, bool on);
int nopal_probe_remove(const char *name, uint32_t length);
void nopal_probes_reset(void);
void nopal_probes_end(void);
void nopal_probes_show(struct seq_file *file);

/* ---- latency.c: the tracers irqsoff, preemptoff, preemptirqsoff, wakeup; sched_switch, events ---- */

/* Under nopal_lock. -ENOENT: there is no tracer of this name. */
int nopal_tracer_switch(const char *name, bool on, char *error, size_t room);
/* Forgets the worst case. */
int nopal_tracer_reset(const char *name);
/* Has /dev/nopal_latency show its worst case. */
int nopal_tracer_choose(const char *name);
void nopal_tracers_threshold(uint32_t microseconds);
void nopal_tracers_show(struct seq_file *file);
/* The worst case of a tracer, or its events, in the format of latency_trace; or its histogram. */
void nopal_tracer_trace(struct seq_file *file, const char *name);
/* Sets an option of its format: verbose, symonly or histogram, or with `no` before it. -EINVAL: another word. */
int nopal_tracer_option(const char *word);
int nopal_tracers_begin(void);
void nopal_tracers_end(void);

/* ---- sections.c: instructions that begin and end sections with interrupts or preemption off ---- */

enum nopal_mode { NOPAL_IRQS, NOPAL_PREEMPT, NOPAL_JOINT, NOPAL_MODES };

/* Finds these instructions, also those of modules that come later, and replaces them by calls of the thunks of `mode`.
 * Sleeps. */
int nopal_sections_on(enum nopal_mode mode);
/* Restores them; afterwards no task is in a thunk. -EBUSY: another tool has changed some of our calls, and would put
 * them back; try again. Sleeps. */
int nopal_sections_off(void);
void nopal_sections_show(struct seq_file *file);
/* The function that was called before `address`, which was left on the stack by a call; 0: it is not known. */
unsigned long nopal_sections_callee(unsigned long address);
int nopal_sections_begin(void);
void nopal_sections_end(void);

/* ---- device.c ---- */

/* Whether the running task may use the module: as perf asks, and where the kernel is not locked down. */
int nopal_device_permits(void);
int nopal_device_begin(void);
void nopal_device_end(void);

/* ---- record.S, slots.S ---- */

extern char nopal_entry[], nopal_entry_arguments[];
void nopal_entry_of_ops(unsigned long site, unsigned long parent, void *ops, struct pt_regs *registers);
void nopal_entry_of_ops_arguments(unsigned long site, unsigned long parent, void *ops, struct pt_regs *registers);
extern char nopal_return[], nopal_return_result[], nopal_tail[], nopal_slots[];
/* Words by addresses behind fentry sites. Each leaf is for 64 KiB, with a word for each 16 bytes. Never freed before
 * the end. */
extern uint32_t *nopal_leaves[];

static inline uint8_t *nopal_slot(uint32_t number)
{
	return (uint8_t *)nopal_slots + (size_t)number * NOPAL_SLOT_BYTES;
}

#endif
