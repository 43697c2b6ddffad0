// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Traces, and the commands that make and switch them. A command is executed completely, or changes nothing.
 */
#include <linux/bsearch.h>
#include <linux/fs.h>
#include <linux/glob.h>
#include <linux/kallsyms.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "command_parser.h"
#include "kernels.h"
#include "module.h"
#include "records.h"

#define NAME_BYTES 64
#define TRACES_AT_MOST 256
#define WATCHED_AT_MOST 64

DEFINE_MUTEX(nopal_lock);

struct trace {
	struct list_head list;
	char name[NAME_BYTES];
	char *what;             /* as it was written */
	uint32_t *functions;    /* indices */
	uint32_t count;
	uint32_t refused;       /* that are meant, too */
	bool on;
};
static LIST_HEAD(traces);
static uint32_t trace_count;
/* The functions that the last `query` asked for: a byte for each of the first asked_count. */
static uint8_t *asked;
static uint32_t asked_count;
/* The last `watch`, as it was written; 0: none. */
static char *watch_text;
/* `start` and `stop`. */
static bool started = true;

/* The error text of a command. */
struct complaint {
	char *text;
	size_t room;
};

static int complain(struct complaint *to, int error, const char *format, ...) __printf(3, 4);
static int complain(struct complaint *to, int error, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(to->text, to->room, format, arguments);
	va_end(arguments);
	return error;
}

/* ---- words of a line ---- */

static int length_of(struct nopal_span span)
{
	return span.end - span.begin;
}

static bool copy_word(const char *line, struct nopal_span span, char *to, size_t room)
{
	size_t length = length_of(span);
	if (length >= room)
		return false;
	memcpy(to, line + span.begin, length);
	to[length] = 0;
	return true;
}

static struct trace *find(const char *line, struct nopal_span name)
{
	struct trace *trace;
	list_for_each_entry(trace, &traces, list)
		if (strlen(trace->name) == length_of(name) && !memcmp(trace->name, line + name.begin, length_of(name)))
			return trace;
	return 0;
}

/* ---- locations ---- */

/* The functions of the plan that a location names. */
struct meaning {
	struct nopal_location location;
	char *names;            /* of GLOB@MODULE, both; `kernel` is the module of what is in none */
	char *module;           /* 0: any */
	uint8_t *marks;
	uint32_t from;          /* indices of functions before are passed over */
	uint32_t found;
};

static bool is_of_module(const struct nopal_function *function, const char *glob)
{
	char buffer[KSYM_NAME_LEN], *module = 0;
	unsigned long size, offset;
	nopal_symbols.name(function->address, &size, &offset, &module, buffer);
	return glob_match(glob, module ? module : "kernel");
}

static void mark(struct meaning *meaning, const struct nopal_function *function)
{
	uint32_t index = function - nopal_functions;
	meaning->found++;
	if (index >= meaning->from)
		meaning->marks[index] = !meaning->location.excluded;
}

/* A function has a name for each symbol that the kernel knows there. */
static void mark_name(void *data, const char *name, unsigned long address)
{
	struct meaning *meaning = data;
	struct nopal_function *function = nopal_function_at(address);
	if (function && glob_match(meaning->names, name) && (!meaning->module || is_of_module(function, meaning->module)))
		mark(meaning, function);
}

static void mark_addresses(struct meaning *meaning)
{
	uint64_t first = meaning->location.first;
	uint64_t last = meaning->location.kind == NOPAL_LOCATION_RANGE ? meaning->location.last : first + 1;
	for (uint32_t i = 0; i < nopal_function_count; i++)
		if (nopal_functions[i].address >= first && nopal_functions[i].address < last)
			mark(meaning, &nopal_functions[i]);
}

/* Marks the functions that locations name, a byte each, from the index `from` on; those of an excluded location are not
 * marked. Of all functions, a location must name some, unless it is of a module, which may come later. */
static int mark_all(const char *line, struct nopal_span what, uint8_t *marks, uint32_t from, struct complaint *error)
{
	struct nopal_span rest = what;
	struct meaning meaning = { .marks = marks, .from = from };
	bool of_modules = from && from < nopal_function_count && nopal_functions[from].address >= MODULES_VADDR;
	for (bool first = true; nopal_location_next(line, &rest, &meaning.location); first = false) {
		const struct nopal_location *location = &meaning.location;
		char text[256] = "";
		meaning.found = 0;
		meaning.module = 0;
		if (first && location->excluded)
			memset(marks + from, 1, nopal_function_count - from);
		if (location->kind == NOPAL_LOCATION_ADDRESS || location->kind == NOPAL_LOCATION_RANGE) {
			mark_addresses(&meaning);
		} else if (location->kind != NOPAL_LOCATION_NAMES) {
			return complain(error, -EINVAL, "a kernel's locations are addresses, ranges, and GLOB[@MODULE]");
		} else if (!copy_word(line, location->text, text, sizeof text)) {
			return complain(error, -EINVAL, "a location is too long");
		} else {
			meaning.module = text;
			meaning.names = strsep(&meaning.module, "@");
			struct nopal_each each = { mark_name, &meaning };
			nopal_each_symbol(of_modules ? 0 : nopal_symbols.each_of_kernel, nopal_symbols.each_of_modules, &each);
		}
		bool may_come = meaning.module && !glob_match(meaning.module, "kernel");
		if (!meaning.found && !location->excluded && !may_come && !from)
			return complain(error, -ENOENT, "%.*s: no function of the plan%s", length_of(what), line + what.begin,
					nopal_function_count ? "" : ", which is empty: `nopal ctl kernel load` gives it");
	}
	return 0;
}

static bool is_traced(const uint8_t *marks, uint32_t index)
{
	return marks[index] && nopal_functions[index].verdict == NOPAL_VERDICT_TRACED;
}

/* The functions that are marked and can be traced. */
static int gather(const uint8_t *marks, struct trace *trace)
{
	for (uint32_t i = 0; i < nopal_function_count; i++) {
		trace->count += is_traced(marks, i);
		trace->refused += marks[i] && !is_traced(marks, i) && nopal_functions[i].verdict != NOPAL_VERDICT_GONE;
	}
	trace->functions = kvmalloc_array(max(trace->count, 1u), sizeof *trace->functions, GFP_KERNEL);
	if (!trace->functions)
		return -ENOMEM;
	for (uint32_t i = 0, at = 0; i < nopal_function_count; i++)
		if (is_traced(marks, i))
			trace->functions[at++] = i;
	return 0;
}

static void drop(struct trace *trace)
{
	if (!trace)
		return;
	kvfree(trace->functions);
	kfree(trace->what);
	kfree(trace);
}

/* ---- commands ---- */

static int make(const char *line, const struct nopal_control *command, struct complaint *error)
{
	struct nopal_span what = command->arguments[0], name = command->arguments[1];
	if (find(line, name))
		return complain(error, -EEXIST, "trace %.*s exists", length_of(name), line + name.begin);
	if (trace_count == TRACES_AT_MOST)
		return complain(error, -ENOSPC, "there are %d traces, no more can be made", TRACES_AT_MOST);
	struct trace *trace = kzalloc(sizeof *trace, GFP_KERNEL);
	uint8_t *marks = vzalloc(nopal_function_count + 1);
	int failed = trace && marks ? 0 : -ENOMEM;
	if (!failed && !copy_word(line, name, trace->name, NAME_BYTES))
		failed = complain(error, -EINVAL, "a name has at most %d letters", NAME_BYTES - 1);
	if (!failed)
		failed = mark_all(line, what, marks, 0, error);
	if (!failed)
		failed = gather(marks, trace);
	if (!failed && !trace->count && trace->refused)
		failed = complain(error, -ENOENT, "%.*s: all of its %u functions are refused", length_of(what),
				  line + what.begin, trace->refused);
	if (!failed) {
		trace->what = kmemdup_nul(line + what.begin, length_of(what), GFP_KERNEL);
		failed = trace->what ? 0 : -ENOMEM;
	}
	vfree(marks);
	if (failed) {
		drop(trace);
		return failed;
	}
	list_add_tail(&trace->list, &traces);
	trace_count++;
	return 0;
}

static void want(struct trace *trace, bool on)
{
	trace->on = on;
	for (uint32_t i = 0; i < trace->count; i++)
		nopal_functions[trace->functions[i]].wanted += on ? 1 : -1;
}

static int turn(struct trace *trace, bool on, struct complaint *error)
{
	if (trace->on == on)
		return 0;
	want(trace, on);
	int failed = nopal_functions_reconcile();
	if (!failed)
		return 0;
	want(trace, !on);
	nopal_functions_reconcile();
	return complain(error, failed, "trace %s cannot be switched %s: error %d", trace->name, on ? "on" : "off", -failed);
}

/* Adds the functions from the index `first` on that the trace's locations name. */
static int extend(struct trace *trace, uint32_t first, uint8_t *marks)
{
	struct trace found = { 0 };
	char text[64];
	struct complaint error = { text, sizeof text };
	memset(marks, 0, nopal_function_count);
	for (uint32_t i = 0; i < trace->count; i++)
		marks[trace->functions[i]] = true;
	int failed = mark_all(trace->what, (struct nopal_span){ 0, strlen(trace->what) }, marks, first, &error);
	if (!failed)
		failed = gather(marks, &found);
	if (failed)
		return failed;
	for (uint32_t i = 0; trace->on && i < found.count; i++)
		nopal_functions[found.functions[i]].wanted += found.functions[i] >= first;
	swap(trace->functions, found.functions);
	trace->count = found.count;
	trace->refused += found.refused;
	kvfree(found.functions);
	return 0;
}

int nopal_traces_extend(uint32_t first)
{
	struct trace *trace;
	if (first == nopal_function_count)
		return 0;
	uint8_t *marks = vzalloc(nopal_function_count + 1);
	int failed = marks ? 0 : -ENOMEM;
	list_for_each_entry(trace, &traces, list)
		if (!failed)
			failed = extend(trace, first, marks);
	vfree(marks);
	/* If memory is short, some traces have been extended. */
	int unreconciled = nopal_functions_reconcile();
	return failed ? failed : unreconciled;
}

static int take_away(struct trace *trace, struct complaint *error)
{
	int failed = turn(trace, false, error);
	if (failed)
		return failed;
	list_del(&trace->list);
	trace_count--;
	drop(trace);
	return 0;
}

static int watch(const char *line, struct nopal_span ids, bool children, struct complaint *error)
{
	struct nopal_span rest = ids;
	uint32_t numbers[WATCHED_AT_MOST], count = 0, number;
	while (nopal_number_next(line, &rest, &number)) {
		if (count == WATCHED_AT_MOST)
			return complain(error, -E2BIG, "at most %d tasks can be watched", WATCHED_AT_MOST);
		numbers[count++] = number;
	}
	/* 0: all. */
	if (count && !numbers[0])
		count = 0;
	char *text = kasprintf(GFP_KERNEL, "watch %.*s%s", length_of(ids), line + ids.begin, children ? " children" : "");
	if (!text)
		return -ENOMEM;
	kfree(watch_text);
	watch_text = text;
	nopal_context_watch(numbers, count, children && count);
	return 0;
}

static int choose_processors(const char *line, struct nopal_span ids, struct complaint *error)
{
	static struct cpumask chosen;   /* under nopal_lock */
	uint32_t number;
	cpumask_clear(&chosen);
	while (nopal_number_next(line, &ids, &number)) {
		if (number >= nr_cpu_ids || !cpu_possible(number))
			return complain(error, -ENXIO, "there is no processor %u", number);
		cpumask_set_cpu(number, &chosen);
	}
	nopal_context_run_on(&chosen);
	return 0;
}

static void start(bool on)
{
	started = on;
	nopal_context_run(on);
}

static void forget_query(void)
{
	vfree(asked);
	asked = 0;
	asked_count = 0;
}

/* The answer is part of the state. */
static int query(const char *line, struct nopal_span what, bool simulates, struct complaint *error)
{
	uint8_t *marks = vzalloc(nopal_function_count + 1);
	int failed = marks ? mark_all(line, what, marks, 0, error) : -ENOMEM;
	if (failed) {
		vfree(marks);
		return failed;
	}
	forget_query();
	asked = marks;
	asked_count = nopal_function_count;
	for (uint32_t i = 0; simulates && i < asked_count; i++)
		if (marks[i])
			nopal_function_simulate(&nopal_functions[i]);
	return 0;
}

static int resize(const char *line, struct nopal_span argument, struct complaint *error)
{
	uint32_t size;
	if (!nopal_number_next(line, &argument, &size))
		return complain(error, -EINVAL, "a size is a number");
	int failed = nopal_context_resize(size);
	if (failed == -EBUSY)
		return complain(error, failed, "a recording has the buffer: its size cannot be changed now");
	if (failed)
		return complain(error, failed, "the buffer cannot hold 2 to the power of %u records: %s", size,
				failed == -ERANGE ? "each processor needs two chunks" : "at most a quarter of the memory is its");
	return 0;
}

static int record_arguments(bool on, struct complaint *error)
{
	int failed = nopal_functions_arguments(on);
	if (failed == -EBUSY)
		return complain(error, failed, "a breakpoint is at an exit of a function that is traced: not now");
	return failed ? complain(error, failed, "functions cannot be changed: error %d", -failed) : 0;
}

static int set_uniform(bool on, struct complaint *error)
{
	int failed = nopal_functions_uniform(on);
	return failed ? complain(error, failed, "functions cannot be changed: error %d", -failed) : 0;
}

static int reset(struct complaint *error)
{
	struct trace *trace, *next;
	list_for_each_entry_safe(trace, next, &traces, list) {
		int failed = take_away(trace, error);
		if (failed)
			return failed;
	}
	nopal_functions_arguments(false);
	int failed = set_uniform(false, error);
	if (failed)
		return failed;
	nopal_markers_reset();
	nopal_probes_reset();
	forget_query();
	kfree(watch_text);
	watch_text = 0;
	nopal_context_watch(0, 0, false);
	nopal_context_run_on(cpu_all_mask);
	nopal_records_reset();
	return 0;
}

static int turn_markers(const char *line, const struct nopal_control *command, struct complaint *error)
{
	struct nopal_span name = command->arguments[0];
	int failed = nopal_markers_switch(line + name.begin, length_of(name), command->command == NOPAL_COMMAND_MARK_ON);
	if (failed == -ENAMETOOLONG)
		return complain(error, failed, "the name of a marker is too long");
	return failed ? complain(error, failed, "no more names of markers can be kept") : 0;
}

static int change_probe(const char *line, const struct nopal_control *command, struct complaint *error)
{
	struct nopal_span name = command->arguments[0];
	const char *text = line + name.begin;
	int failed = command->command == NOPAL_COMMAND_PROBE_REMOVE ?
			     nopal_probe_remove(text, length_of(name)) :
			     nopal_probe_switch(text, length_of(name), command->command == NOPAL_COMMAND_PROBE_ON);
	if (failed == -ENOENT)
		return complain(error, failed, "there is no probe %.*s", length_of(name), text);
	return failed ? complain(error, failed, "probe %.*s cannot be switched: error %d", length_of(name), text, -failed) : 0;
}

static int make_probe_again(const char *line, uint32_t length, struct complaint *error)
{
	int failed = nopal_probe_again(line, length);
	if (failed == -ENOENT)
		return complain(error, -EOPNOTSUPP, "`nopal ctl kernel` makes new probes: it works out what they fetch");
	if (failed == -EEXIST)
		return complain(error, failed, "there is a probe of this name already");
	return failed ? complain(error, failed, "the probe cannot be made again: error %d", -failed) : 0;
}

static int trace_latency(const char *line, const struct nopal_control *command, struct complaint *error)
{
	struct nopal_span argument = command->arguments[0];
	char name[NAME_BYTES];
	uint32_t number;
	if (command->command == NOPAL_COMMAND_THRESHOLD) {
		if (!nopal_number_next(line, &argument, &number))
			return complain(error, -EINVAL, "a threshold is a number of microseconds");
		nopal_tracers_threshold(number);
		return 0;
	}
	if (!copy_word(line, argument, name, sizeof name))
		return complain(error, -EINVAL, "a name has at most %d letters", NAME_BYTES - 1);
	if (command->command == NOPAL_COMMAND_TRACER_RESET)
		return nopal_tracer_reset(name) ? complain(error, -ENOENT, "there is no tracer %s", name) : 0;
	if (command->command == NOPAL_COMMAND_LATENCY)
		return nopal_tracer_choose(name) ? complain(error, -ENOENT, "there is no tracer %s", name) : 0;
	return nopal_tracer_switch(name, command->command == NOPAL_COMMAND_TRACER_ON, error->text, error->room);
}

static int obey(const char *line, uint32_t length, const struct nopal_control *command, struct complaint *error)
{
	struct trace *trace = 0;
	switch (command->command) {
	case NOPAL_COMMAND_TRACE_ON:
	case NOPAL_COMMAND_TRACE_OFF:
	case NOPAL_COMMAND_TRACE_REMOVE:
		trace = find(line, command->arguments[0]);
		if (!trace)
			return complain(error, -ENOENT, "there is no trace %.*s", length_of(command->arguments[0]),
					line + command->arguments[0].begin);
	}
	switch (command->command) {
	case NOPAL_COMMAND_NONE:
		return 0;
	case NOPAL_COMMAND_TRACE_NEW:
		return make(line, command, error);
	case NOPAL_COMMAND_TRACE_ON:
	case NOPAL_COMMAND_TRACE_OFF:
		return turn(trace, command->command == NOPAL_COMMAND_TRACE_ON, error);
	case NOPAL_COMMAND_TRACE_REMOVE:
		return take_away(trace, error);
	case NOPAL_COMMAND_WATCH:
	case NOPAL_COMMAND_WATCH_CHILDREN:
		return watch(line, command->arguments[0], command->command == NOPAL_COMMAND_WATCH_CHILDREN, error);
	case NOPAL_COMMAND_PROCESSORS:
		return choose_processors(line, command->arguments[0], error);
	case NOPAL_COMMAND_PROCESSORS_ALL:
		nopal_context_run_on(cpu_all_mask);
		return 0;
	case NOPAL_COMMAND_ARGUMENTS_ON:
	case NOPAL_COMMAND_ARGUMENTS_OFF:
		return record_arguments(command->command == NOPAL_COMMAND_ARGUMENTS_ON, error);
	case NOPAL_COMMAND_UNIFORM_ON:
	case NOPAL_COMMAND_UNIFORM_OFF:
		return set_uniform(command->command == NOPAL_COMMAND_UNIFORM_ON, error);
	case NOPAL_COMMAND_QUERY:
	case NOPAL_COMMAND_TESTTRACEIN:
		return query(line, command->arguments[0], command->command == NOPAL_COMMAND_TESTTRACEIN, error);
	case NOPAL_COMMAND_SIZE:
		return resize(line, command->arguments[0], error);
	case NOPAL_COMMAND_MARK_ON:
	case NOPAL_COMMAND_MARK_OFF:
		return turn_markers(line, command, error);
	case NOPAL_COMMAND_PROBE_ON:
	case NOPAL_COMMAND_PROBE_OFF:
	case NOPAL_COMMAND_PROBE_REMOVE:
		return change_probe(line, command, error);
	case NOPAL_COMMAND_PROBE:
		return make_probe_again(line, length, error);
	case NOPAL_COMMAND_START:
	case NOPAL_COMMAND_STOP:
		start(command->command == NOPAL_COMMAND_START);
		return 0;
	case NOPAL_COMMAND_RESET:
		return reset(error);
	case NOPAL_COMMAND_TRACER_ON:
	case NOPAL_COMMAND_TRACER_OFF:
	case NOPAL_COMMAND_TRACER_RESET:
	case NOPAL_COMMAND_LATENCY:
	case NOPAL_COMMAND_THRESHOLD:
		return trace_latency(line, command, error);
	default:
		return complain(error, -EOPNOTSUPP, "this command is not for kernels");
	}
}

int nopal_traces_reset(char *text, size_t room)
{
	return reset(&(struct complaint){ text, room });
}

int nopal_command(const char *line, uint32_t length, char *text, size_t room)
{
	struct complaint error = { text, room };
	struct nopal_control *command = kmalloc(sizeof *command, GFP_KERNEL);
	if (!command)
		return -ENOMEM;
	text[0] = 0;
	int failed;
	if (!nopal_control_parse(line, length, command))
		failed = complain(&error, -EINVAL, "%.*s: %s%.*s%sexpected %s", (int)length, line,
				  length_of(command->bad) ? "not " : "", length_of(command->bad), line + command->bad.begin,
				  length_of(command->bad) ? ", " : "", command->expected);
	else
		failed = obey(line, length, command, &error);
	kfree(command);
	return failed;
}

/* ---- the state ---- */

static int by_index(const void *one, const void *other)
{
	const uint32_t *first = one, *second = other;
	return *first < *second ? -1 : *first > *second;
}

/* One line for a function that was asked for. */
static void show_asked(struct seq_file *file, uint32_t index, bool with_address)
{
	const struct nopal_function *function = &nopal_functions[index];
	const struct trace *trace;
	bool is_on = false;
	const char *before = ": ";
	seq_printf(file, "#%08lx %ps: ", with_address ? function->address : 0, (void *)function->address);
	if (function->verdict != NOPAL_VERDICT_TRACED) {
		seq_puts(file, "cannot be traced: `nopal ctl kernel load` says why\n");
		return;
	}
	list_for_each_entry(trace, &traces, list)
		is_on |= trace->on && bsearch(&index, trace->functions, trace->count, sizeof index, by_index);
	if (is_on && !nopal_function_records(function))
		seq_puts(file, "not traced, as a breakpoint is at an exit");
	else
		seq_puts(file, !is_on ? "not traced" : started ? "traced" : "not traced until start");
	list_for_each_entry(trace, &traces, list)
		if (bsearch(&index, trace->functions, trace->count, sizeof index, by_index)) {
			seq_printf(file, "%s%s (%s)", before, trace->name, trace->on ? "on" : "off");
			before = ", ";
		}
	seq_putc(file, '\n');
}

static void show_counts(struct seq_file *file)
{
	struct nopal_counts all;
	uint64_t queued;
	if (nopal_records_count(&all, &queued)) {
		seq_puts(file, "#tracelog in a recording, which has the buffer\n");
		return;
	}
	seq_printf(file, "#tracehits %llu, in queue %llu\n#tracelog /dev/nopal_trace\n#traceactive %u\n", all.records, queued,
		   started);
	seq_printf(file, "#slothits %llu\n#traceinhits %llu\n", all.records + all.lost, all.entries);
}

static void show_processors(struct seq_file *file)
{
	const struct cpumask *processors = nopal_context_processors();
	int processor;
	if (cpumask_full(processors))
		return;
	seq_puts(file, "processors");
	for_each_cpu(processor, processors)
		seq_printf(file, " %d", processor);
	seq_putc(file, '\n');
}

void nopal_traces_show(struct seq_file *file)
{
	struct trace *trace;
	/* Addresses are shown only to readers who may read them in kallsyms. */
	bool with_address = nopal_symbols.shows_addresses(file->file->f_cred);
	seq_printf(file, "logsize %u\n", nopal_context_size());
	if (nopal_functions_have_arguments())
		seq_puts(file, "arguments on\n");
	list_for_each_entry(trace, &traces, list) {
		const struct nopal_function *first = trace->count ? &nopal_functions[trace->functions[0]] : 0;
		seq_printf(file, "trace %s new %s\n", trace->what, trace->name);
		if (first)
			seq_printf(file, "#trace %08lx traced? %08lx\n", with_address ? first->address : 0,
				   with_address && nopal_function_records(first) ? (unsigned long)nopal_entry : 0);
		seq_printf(file, "trace %s %s\n", trace->name, trace->on ? "on" : "off");
		uint32_t count = 0;
		for (uint32_t i = 0; i < trace->count; i++)
			count += nopal_functions[trace->functions[i]].verdict == NOPAL_VERDICT_TRACED;
		seq_printf(file, "#functions %u, refused %u\n", count, trace->refused);
	}
	nopal_markers_show(file);
	nopal_probes_show(file);
	nopal_tracers_show(file);
	show_counts(file);
	seq_printf(file, "%s\n", watch_text ? watch_text : "watch 0");
	show_processors(file);
	seq_printf(file, "uniform %s\n", nopal_functions_are_uniform() ? "on" : "off");
	seq_puts(file, started ? "start\n" : "stop\n");
	for (uint32_t i = 0; i < asked_count; i++)
		if (asked[i])
			show_asked(file, i, with_address);
}

void nopal_traces_end(void)
{
	struct trace *trace, *next;
	list_for_each_entry_safe(trace, next, &traces, list) {
		list_del(&trace->list);
		drop(trace);
	}
	forget_query();
	kfree(watch_text);
}
