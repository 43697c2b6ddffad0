// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The worst case of a latency tracer as text, in the two versions of the kernel's latency_trace: where it began and
 * ended, and the functions that its processor entered meanwhile, if they were recorded. An unknown value is `-`.
 */
#include <linux/utsname.h>
#include <linux/ctype.h>
#include "device.h"
#include "latency_trace.h"
#include "module.h"
#include "nopal.h"
#include "nopal_probe.h"
#include "records.h"

#define DEPTH_AT_MOST 64
#define ROWS_AT_MOST 2000

static bool verbose, symonly, histogram;        /* under nopal_lock */

int nopal_tracer_option(const char *word)
{
	bool on = strncmp(word, "no", 2);
	if (!on)
		word += 2;
	if (!strcmp(word, "verbose"))
		verbose = on;
	else if (!strcmp(word, "symonly"))
		symonly = on;
	else if (!strcmp(word, "histogram"))
		histogram = on;
	else
		return -EINVAL;
	return 0;
}

bool nopal_latency_shows_histogram(void)
{
	return histogram;
}

/* ---- the functions that were entered meanwhile ---- */

/* The open calls of each task that ran, at the record that is read. */
struct calls {
	struct {
		uint32_t site, tag, thread;
	} open[DEPTH_AT_MOST];
	uint32_t depth;
};

static void enter(struct calls *calls, const struct nopal_record *record)
{
	if (calls->depth < DEPTH_AT_MOST) {
		calls->open[calls->depth].site = record->site;
		calls->open[calls->depth].tag = record->tag;
		calls->open[calls->depth].thread = record->thread;
		calls->depth++;
	}
}

/* An exit ends the innermost open call of its site and tag, and all calls inside it. */
static void leave(struct calls *calls, const struct nopal_record *record)
{
	for (uint32_t i = calls->depth; i--;)
		if (calls->open[i].site == record->site && calls->open[i].tag == record->tag &&
		    calls->open[i].thread == record->thread) {
			calls->depth = i;
			return;
		}
}

/* The site of the innermost open call of a task; 0: none is known. */
static uint32_t innermost(const struct calls *calls, uint32_t thread)
{
	for (uint32_t i = calls->depth; i--;)
		if (calls->open[i].thread == thread)
			return calls->open[i].site;
	return 0;
}

/* The next entry from `begin` to `end`, with the site of its caller (0: not known). */
static bool next_entry(struct nopal_reading *reading, struct calls *calls, uint64_t begin, uint64_t end,
		       struct nopal_record *record, uint32_t *caller)
{
	while (nopal_record_next(reading, record)) {
		if (record->is_exit) {
			leave(calls, record);
			continue;
		}
		*caller = innermost(calls, record->thread);
		enter(calls, record);
		if (record->clock >= begin && record->clock <= end)
			return true;
	}
	return false;
}

/* ---- rows ---- */

struct row {
	const char *name;
	uint32_t thread, processor;
	const char *flags;      /* irqs-off, need-resched, hardirq or softirq, depth */
	const char *count;      /* of preemption, or `-` */
	uint32_t number;
	uint64_t clock, ticks, next;    /* since the begin: its own, and those of the row after it */
};

static void show_head(struct seq_file *file, const struct row *row)
{
	uint64_t at = nopal_microseconds_of(row->ticks), delay = nopal_microseconds_of(row->next) - at;
	if (verbose)
		seq_printf(file, "%16s %5u %u %c %8s %08x [%08llx] %llu.%03llums (+%llu.%03llums): ", row->name, row->thread,
			   row->processor, row->flags[0] == 'd' ? '1' : row->flags[0] == '.' ? '0' : '-', row->count, row->number,
			   nopal_microseconds_of(row->clock), at / 1000, at % 1000, delay / 1000, delay % 1000);
	else
		seq_printf(file, "%8.8s-%-5u %3u%s %4lluus%c: ", row->name, row->thread, row->processor, row->flags, at,
			   delay > 100 ? '!' : delay > 1 ? '+' : ' ');
}

static bool shows_addresses(const struct seq_file *file)
{
	return verbose && !symonly && nopal_symbols.shows_addresses(file->file->f_cred);
}

static void show_site(struct seq_file *file, uint32_t site)
{
	struct nopal_record record = { .site = site };
	const struct nopal_function *function = nopal_record_function(&record);
	if (!function)
		seq_puts(file, "-");
	else if (shows_addresses(file))
		seq_printf(file, "%ps <%08lx>", (void *)function->address, function->address);
	else
		seq_printf(file, "%ps", (void *)function->address);
}

/* The rows of functions; counts them only, without a file. */
static uint32_t show_functions(struct seq_file *file, const struct nopal_worst *worst, const void *chunk, bool irqs_are_off,
			       uint64_t *last)
{
	struct nopal_reading reading = nopal_reading_of_copy(chunk, worst->bytes);
	struct calls calls = { .depth = 0 };
	struct nopal_record record, next;
	uint64_t begin = worst->end - worst->ticks;
	uint32_t caller = 0, next_caller = 0, number = 0;
	if (!worst->bytes)
		return 0;
	bool is_there = next_entry(&reading, &calls, begin, worst->end, &record, &caller);
	*last = is_there ? record.clock - begin : worst->ticks;
	while (is_there && number < ROWS_AT_MOST) {
		is_there = next_entry(&reading, &calls, begin, worst->end, &next, &next_caller);
		number++;
		if (file) {
			struct row row = {
				.name = record.thread == worst->thread ? worst->name : record.thread ? "<...>" : "<idle>",
				.thread = record.thread,
				.processor = worst->processor,
				.flags = irqs_are_off ? "d---" : "----",
				.count = "-",
				.number = number,
				.clock = record.clock,
				.ticks = record.clock - begin,
				.next = is_there ? next.clock - begin : worst->ticks,
			};
			show_head(file, &row);
			show_site(file, record.site);
			seq_puts(file, " (");
			show_site(file, caller);
			seq_puts(file, ")\n");
		}
		record = next;
		caller = next_caller;
	}
	return number;
}

static char flag_of_interrupt(uint32_t count)
{
	bool hard = count & HARDIRQ_MASK, soft = count & SOFTIRQ_OFFSET;
	return hard && soft ? 'H' : hard ? 'h' : soft ? 's' : '.';
}

void nopal_flags_write(char flags[NOPAL_FLAGS_BYTES], uint32_t count, bool irqs_off, bool need_resched)
{
	uint32_t depth = count & PREEMPT_MASK;
	flags[0] = irqs_off ? 'd' : '.';
	flags[1] = need_resched ? 'n' : '.';
	flags[2] = flag_of_interrupt(count);
	flags[3] = depth > 9 ? '9' : depth ? '0' + depth : '.';
	flags[4] = 0;
}

static const char legend[] = "                 _------=> CPU#            \n"
			     "                / _-----=> irqs-off        \n"
			     "               | / _----=> need-resched    \n"
			     "               || / _---=> hardirq/softirq \n"
			     "               ||| / _--=> preempt-depth   \n"
			     "               |||| /                      \n"
			     "               |||||     delay             \n"
			     "   cmd     pid ||||| time  |   caller      \n"
			     "      \\   /    |||||   \\   |   /           \n";

void nopal_latency_trace_show(struct seq_file *file, const char *tracer, const struct nopal_worst *worst, const void *chunk,
			      bool irqs_are_off)
{
	uint64_t first = worst->ticks;
	uint32_t functions = show_functions(0, worst, chunk, irqs_are_off, &first), rows = functions + (worst->from ? 2 : 0);
	const struct nopal_chunk_header *header = chunk;
	seq_printf(file, "%s latency trace v1.1.5 on %s\n latency: %llu us, #%u/%u, CPU#%u | (M:- VP:0, KP:0, SP:0 HP:0 #P:%u)\n",
		   tracer, init_utsname()->release, nopal_microseconds_of(worst->ticks), rows, rows, worst->processor,
		   num_online_cpus());
	seq_printf(file, "    | task: %s-%u (uid:%u nice:%d policy:%u rt_prio:%u)\n", worst->name, worst->thread, worst->user,
		   worst->nice, worst->policy, worst->urgency);
	if (worst->from) {
		seq_puts(file, " => started at: ");
		nopal_show_place(file, worst->from, shows_addresses(file));
		seq_puts(file, "\n => ended at:   ");
		nopal_show_place(file, worst->to, shows_addresses(file));
		seq_puts(file, "\n");
	}
	if (worst->bytes && header->clock_begin > worst->end - worst->ticks && header->sequence)
		seq_puts(file, " => functions before the first one shown are not in the buffer any more\n");
	seq_puts(file, "\n");
	if (!verbose && rows)
		seq_puts(file, legend);
	char flags[NOPAL_FLAGS_BYTES], count[16];
	nopal_flags_write(flags, worst->count, worst->irqs_off, worst->need_resched);
	snprintf(count, sizeof count, "%08x", worst->count);
	struct row begin = {
		.name = worst->name,
		.thread = worst->thread,
		.processor = worst->processor,
		.flags = irqs_are_off ? "d---" : "----",
		.count = "-",
		.clock = worst->end - worst->ticks,
		.next = first,
	};
	struct row end = begin;
	end.flags = flags;
	end.count = count;
	end.number = rows - 1;
	end.clock = worst->end;
	end.ticks = end.next = worst->ticks;
	if (worst->from) {
		show_head(file, &begin);
		nopal_show_place(file, worst->from, shows_addresses(file));
		seq_puts(file, "\n");
	}
	show_functions(file, worst, chunk, irqs_are_off, &first);
	if (worst->from) {
		show_head(file, &end);
		nopal_show_place(file, worst->to, shows_addresses(file));
		seq_puts(file, "\n");
	}
}

/* ---- events of markers ---- */

/* The values of an event, as in the record: those of text have its length, and where it is. */
struct values {
	struct {
		uint64_t word;
		const char *text;       /* 0: it is no text */
	} each[NOPAL_VALUES];
	uint32_t count;
};

static struct values values_of(const struct nopal_seen *seen, const uint32_t *types)
{
	struct values values = { .count = 0 };
	const uint64_t *at = seen->words + 2, *end = seen->words + seen->count;
	if (seen->event >> NOPAL_EVENT_WORDS_SHIFT == NOPAL_EVENT_VARIABLE)
		at++;
	while (values.count < NOPAL_VALUES && at < end) {
		uint32_t type = types[values.count / 6] >> (values.count % 6 * 4) & 15;
		uint64_t word = *at++;
		if (!type)
			break;
		if (type == NOPAL_TYPE_STRING || type == NOPAL_TYPE_BYTES) {
			word = (uint32_t)word;
			if (word > (end - at) * 8)
				break;
			values.each[values.count].text = (const char *)at;
			at += DIV_ROUND_UP(word, 8);
		}
		values.each[values.count++].word = word;
	}
	return values;
}

/* The name of a task may hold any bytes. */
static void copy_text(char *to, size_t room, const struct values *values, uint32_t number)
{
	size_t length = number < values->count && values->each[number].text ? values->each[number].word : 0;
	length = min(length, room - 1);
	for (size_t i = 0; i < length; i++)
		to[i] = isprint(values->each[number].text[i]) ? values->each[number].text[i] : '?';
	to[length] = 0;
}

/* The format with the values in place of its conversions. */
static void show_values(struct seq_file *file, const struct nopal_description *marker, const struct values *values)
{
	const char *at = marker->format;
	seq_printf(file, "%s ", marker->name);
	for (uint32_t i = 0; *at; at++) {
		if (*at != '%' || at[1] == '%' || i == values->count) {
			seq_putc(file, *at);
			at += *at == '%' && at[1] == '%';
			continue;
		}
		char text[64];
		for (at++; *at && !isalpha(*at); at++)
			continue;
		for (; *at && strchr("hlqjzt", *at); at++)
			continue;
		copy_text(text, sizeof text, values, i);
		if (values->each[i].text)
			seq_printf(file, "\"%s\"", text);
		else if (*at == 'd' || *at == 'i')
			seq_printf(file, "%lld", values->each[i].word);
		else
			seq_printf(file, *at == 'p' || *at == 'x' ? "0x%llx" : "%llu", values->each[i].word);
		i++;
		if (!*at)
			break;
	}
}

/* The values of events.c. */
enum { PREVIOUS, PREVIOUS_ID, PREVIOUS_RANK, STATE, NEXT, NEXT_ID, NEXT_RANK, SWITCH_FLAGS, SWITCH_VALUES };
enum { WOKEN, WOKEN_ID, WOKEN_RANK, TARGET, WAKEUP_FLAGS, WAKEUP_VALUES };

/* The name of the task that each processor runs, as far as switches tell. */
struct running {
	uint32_t thread;
	char name[TASK_COMM_LEN];
};

struct event {
	const struct nopal_description *marker;
	bool is_switch, is_wakeup;
	struct values values;
};

static struct event event_of(const struct nopal_seen *seen)
{
	const uint32_t *types;
	bool is_own;
	struct event event = { .marker = nopal_marker_of(seen->event, &types, &is_own) };
	if (event.marker) {
		event.values = values_of(seen, types);
		event.is_switch = is_own && event.values.count == SWITCH_VALUES;
		event.is_wakeup = is_own && event.values.count == WAKEUP_VALUES;
	}
	return event;
}

static void show_event(struct seq_file *file, struct row *row, const struct event *event, struct running *running)
{
	const struct values *values = &event->values;
	char flags[NOPAL_FLAGS_BYTES] = "----", text[TASK_COMM_LEN], state[2];
	if (event->is_switch || event->is_wakeup)
		copy_text(flags, sizeof flags, values, event->is_switch ? SWITCH_FLAGS : WAKEUP_FLAGS);
	if (event->is_switch) {
		copy_text(running->name, sizeof running->name, values, PREVIOUS);
		running->thread = row->thread;
	}
	bool is_known = running->name[0] && running->thread == row->thread;
	row->name = !row->thread ? "<idle>" : is_known ? running->name : "<...>";
	row->flags = flags;
	show_head(file, row);
	if (event->is_switch) {
		copy_text(state, sizeof state, values, STATE);
		copy_text(text, sizeof text, values, NEXT);
		seq_printf(file, "%lld:%lld:%s --> %lld:%lld %s", values->each[PREVIOUS_ID].word, values->each[PREVIOUS_RANK].word,
			   state, values->each[NEXT_ID].word, values->each[NEXT_RANK].word, text);
		copy_text(running->name, sizeof running->name, values, NEXT);
		running->thread = values->each[NEXT_ID].word;
	} else if (event->is_wakeup) {
		copy_text(text, sizeof text, values, WOKEN);
		seq_printf(file, "%u + %lld:%lld %s", row->thread, values->each[WOKEN_ID].word, values->each[WOKEN_RANK].word, text);
	} else {
		show_values(file, event->marker, values);
	}
	seq_putc(file, '\n');
}

static bool is_shown(const struct nopal_seen *seen)
{
	return event_of(seen).marker && seen->processor < nr_cpu_ids;
}

static bool is_switch(const struct nopal_seen *seen)
{
	return is_shown(seen) && event_of(seen).is_switch;
}

static void show_events(struct seq_file *file, const char *tracer, const struct nopal_newest *newest, struct running *running)
{
	const struct nopal_seen *events = newest->events;
	seq_printf(file, "%s latency trace v1.1.5 on %s\n latency: 0 us, #%u/%llu, CPU#- | (M:- VP:0, KP:0, SP:0 HP:0 #P:%u)\n",
		   tracer, init_utsname()->release, newest->count, newest->all, num_online_cpus());
	seq_puts(file, "    | task: - (uid:- nice:- policy:- rt_prio:-)\n\n");
	if (!verbose && newest->count)
		seq_puts(file, legend);
	for (uint32_t i = 0; i < newest->count; i++) {
		struct event event = event_of(&events[i]);
		struct row row = {
			.thread = events[i].thread,
			.processor = events[i].processor,
			.count = "-",
			.number = i,
			.clock = events[i].clock,
			.ticks = events[i].clock - events[0].clock,
			.next = events[min(i + 1, newest->count - 1)].clock - events[0].clock,
		};
		show_event(file, &row, &event, &running[row.processor]);
	}
}

void nopal_events_show(struct seq_file *file, const char *tracer, bool switches_alone)
{
	struct running *running = kvcalloc(nr_cpu_ids, sizeof *running, GFP_KERNEL);
	struct nopal_newest newest = {
		.is_shown = switches_alone ? is_switch : is_shown,
		.events = kvcalloc(ROWS_AT_MOST, sizeof *newest.events, GFP_KERNEL),
		.room = ROWS_AT_MOST,
	};
	if (nopal_context_hold()) {
		seq_puts(file, "# a recording has the buffer\n");
	} else {
		if (newest.events && running) {
			nopal_records_newest(&newest);
			show_events(file, tracer, &newest, running);
		}
		nopal_context_let_go();
	}
	kvfree(newest.events);
	kvfree(running);
}
