/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The traces that are wanted of a host without a tool. WHAT of a trace is kept as it was written, and is looked up
 * again for each function, so no memory is needed that grows with the host.
 */
#include "traces.h"

#include "command_parser.h"

static uint32_t length_of(const char *text)
{
	uint32_t length = 0;
	while (text[length])
		length++;
	return length;
}

static bool same(const char *one, const char *other)
{
	while (*one && *one == *other) {
		one++;
		other++;
	}
	return *one == *other;
}

/* Goes back to the last `*` only: another match of an earlier one leads to no other result. */
static bool matches(const char *glob, uint32_t length, const char *name)
{
	const char *end = glob + length, *star = 0, *resume = name;
	while (*name || glob < end) {
		if (glob < end && *glob == '*') {
			star = ++glob;
			resume = name;
		} else if (*name && glob < end && (*glob == '?' || *glob == *name)) {
			glob++;
			name++;
		} else if (star && *resume) {
			glob = star;
			name = ++resume;
		} else {
			return false;
		}
	}
	return true;
}

/* ---- what is said ---- */

void nopal_traces_say(const struct nopal_traces *all, const char *text)
{
	all->say(text, length_of(text));
}

void nopal_traces_say_number(const struct nopal_traces *all, uint64_t number, uint32_t base, const char *behind)
{
	static const char digits[] = "0123456789abcdef";
	char text[20];
	uint32_t at = sizeof text;
	do
		text[--at] = digits[number % base];
	while (number /= base);
	all->say(text + at, sizeof text - at);
	nopal_traces_say(all, behind);
}

static bool complain(const struct nopal_traces *all, const char *about, const char *why)
{
	nopal_traces_say(all, "error: ");
	nopal_traces_say(all, about);
	nopal_traces_say(all, why);
	nopal_traces_say(all, "\n");
	return false;
}

static bool copy(const struct nopal_traces *all, const char *line, struct nopal_span span, char *to, uint32_t room)
{
	uint32_t length = span.end - span.begin;
	if (length >= room)
		return complain(all, "", "a name has at most 31 letters, and a glob or a list of locations 127");
	for (uint32_t i = 0; i < room; i++)
		to[i] = i < length ? line[span.begin + i] : 0;
	return true;
}

/* ---- what is wanted ---- */

static bool is_at(const struct nopal_traced *function, const char *line, const struct nopal_location *location)
{
	if (location->kind == NOPAL_LOCATION_NAMES)
		return matches(line + location->text.begin, location->text.end - location->text.begin, function->name);
	uint64_t last = location->kind == NOPAL_LOCATION_RANGE ? location->last : location->first + 1;
	return function->address >= location->first && function->address < last;
}

static bool is_in(const struct nopal_traced *function, const char *what)
{
	struct nopal_span rest = { 0, length_of(what) };
	struct nopal_location location;
	bool found = false;
	for (bool first = true; nopal_location_next(what, &rest, &location); first = false) {
		found |= first && location.excluded;
		if (is_at(function, what, &location))
			found = !location.excluded;
	}
	return found;
}

bool nopal_traces_want(const struct nopal_traces *all, const struct nopal_traced *function)
{
	for (uint32_t i = 0; i < NOPAL_TRACES && !all->stopped; i++)
		if (all->traces[i].on && is_in(function, all->traces[i].what))
			return true;
	return false;
}

bool nopal_traces_want_marker(const struct nopal_traces *all, const char *name)
{
	bool wanted = false;
	for (uint32_t i = 0; i < NOPAL_TRACES && !all->stopped; i++)
		if (all->marks[i].what[0] && matches(all->marks[i].what, length_of(all->marks[i].what), name))
			wanted = all->marks[i].on;
	return wanted;
}

/* ---- commands ---- */

static bool apply(const struct nopal_traces *all)
{
	return !all->reconcile() || complain(all, "", "sites that hold bytes of somebody else were left alone");
}

/* The number of functions of WHAT that can be traced, each of them printed. 0: it has complained. */
static uint32_t count(const struct nopal_traces *all, const char *what, bool says)
{
	struct nopal_span rest = { 0, length_of(what) };
	struct nopal_location location;
	uint32_t found = 0;
	while (nopal_location_next(what, &rest, &location))
		if (location.kind != NOPAL_LOCATION_NAMES && location.kind != NOPAL_LOCATION_ADDRESS && location.kind != NOPAL_LOCATION_RANGE)
			return complain(all, what, ": locations are addresses, ranges and globs here");
	for (uint32_t i = 0; i < all->function_count; i++) {
		const struct nopal_traced *function = &all->functions[i];
		if (!function->thunk || !is_in(function, what))
			continue;
		found++;
		if (!says)
			continue;
		nopal_traces_say(all, "#site ");
		nopal_traces_say_number(all, i + 1, 10, " 0x");
		nopal_traces_say_number(all, function->address, 16, " ");
		nopal_traces_say(all, function->name);
		nopal_traces_say(all, all->is_on(function->site) ? " on\n" : " off\n");
	}
	return found ? found : complain(all, what, ": no function that can be traced");
}

static struct nopal_trace *find(struct nopal_traces *all, const char *name)
{
	for (uint32_t i = 0; i < NOPAL_TRACES; i++)
		if (same(all->traces[i].name, name))
			return &all->traces[i];
	return 0;
}

static bool make(struct nopal_traces *all, const struct nopal_trace *trace)
{
	struct nopal_trace *free = find(all, "");
	if (find(all, trace->name))
		return complain(all, trace->name, ": this trace exists");
	if (!free)
		return complain(all, trace->name, ": there is no room for another trace");
	if (!count(all, trace->what, false))
		return false;
	*free = *trace;
	return true;
}

static bool turn(struct nopal_traces *all, const char *name, uint32_t command)
{
	struct nopal_trace *trace = find(all, name);
	if (!trace)
		return complain(all, name, ": there is no such trace");
	trace->on = command == NOPAL_COMMAND_TRACE_ON;
	if (command == NOPAL_COMMAND_TRACE_REMOVE)
		*trace = (struct nopal_trace){ .on = false };
	return apply(all);
}

static void drop_marks(struct nopal_traces *all)
{
	for (uint32_t i = 0; i < NOPAL_TRACES; i++)
		all->marks[i] = (struct nopal_trace){ .on = false };
}

/* The glob becomes the last one, and its earlier state is dropped. If nothing is on, nothing need be off. */
static bool turn_markers(struct nopal_traces *all, const struct nopal_trace *mark)
{
	uint32_t kept = 0;
	bool any = mark->on;
	for (uint32_t i = 0; i < NOPAL_TRACES; i++)
		kept += all->marks[i].what[0] && !same(all->marks[i].what, mark->what);
	if (kept == NOPAL_TRACES)
		return complain(all, mark->what, ": there is no room for more names of markers");
	kept = 0;
	for (uint32_t i = 0; i < NOPAL_TRACES; i++)
		if (all->marks[i].what[0] && !same(all->marks[i].what, mark->what)) {
			any |= all->marks[i].on;
			all->marks[kept++] = all->marks[i];
		}
	all->marks[kept++] = *mark;
	while (kept < NOPAL_TRACES)
		all->marks[kept++] = (struct nopal_trace){ .on = false };
	if (!any)
		drop_marks(all);
	return apply(all);
}

static bool reset(struct nopal_traces *all)
{
	for (uint32_t i = 0; i < NOPAL_TRACES; i++)
		all->traces[i] = (struct nopal_trace){ .on = false };
	drop_marks(all);
	all->stopped = false;
	return apply(all);
}

static void say_words(const struct nopal_traces *all, const char *first, const char *second, const char *third)
{
	nopal_traces_say(all, first);
	nopal_traces_say(all, second);
	nopal_traces_say(all, third);
}

static bool show(const struct nopal_traces *all)
{
	for (uint32_t i = 0; i < NOPAL_TRACES; i++) {
		const struct nopal_trace *trace = &all->traces[i];
		if (!trace->name[0])
			continue;
		say_words(all, "trace ", trace->what, " new ");
		say_words(all, trace->name, "\n", "");
		if (trace->on)
			say_words(all, "trace ", trace->name, " on\n");
	}
	for (uint32_t i = 0; i < NOPAL_TRACES; i++)
		if (all->marks[i].what[0])
			say_words(all, "mark ", all->marks[i].what, all->marks[i].on ? " on\n" : " off\n");
	nopal_traces_say(all, all->stopped ? "stop\n" : "start\n");
	all->say_more();
	uint64_t lost = 0;
	for (uint32_t i = 0; i < NOPAL_LOST_COUNTERS; i++)
		lost += __atomic_load_n(&all->region->lost[i].lost[NOPAL_LOST_ALL], __ATOMIC_RELAXED);
	nopal_traces_say(all, "#lost ");
	nopal_traces_say_number(all, lost, 10, "\n");
	return true;
}

static bool obey(struct nopal_traces *all, const char *line, const struct nopal_control *command)
{
	struct nopal_trace trace = { .on = command->command == NOPAL_COMMAND_MARK_ON };
	struct nopal_span first = command->arguments[0], second = command->arguments[1];
	switch (command->command) {
	case NOPAL_COMMAND_NONE:
		return true;
	case NOPAL_COMMAND_TRACE_NEW:
		return copy(all, line, first, trace.what, sizeof trace.what) && copy(all, line, second, trace.name, sizeof trace.name) &&
		       make(all, &trace);
	case NOPAL_COMMAND_TRACE_ON:
	case NOPAL_COMMAND_TRACE_OFF:
	case NOPAL_COMMAND_TRACE_REMOVE:
		return copy(all, line, first, trace.name, sizeof trace.name) && turn(all, trace.name, command->command);
	case NOPAL_COMMAND_MARK_ON:
	case NOPAL_COMMAND_MARK_OFF:
		return copy(all, line, first, trace.what, sizeof trace.what) && turn_markers(all, &trace);
	case NOPAL_COMMAND_START:
	case NOPAL_COMMAND_STOP:
		all->stopped = command->command == NOPAL_COMMAND_STOP;
		return apply(all);
	case NOPAL_COMMAND_RESET:
		return reset(all);
	case NOPAL_COMMAND_QUERY:
		return copy(all, line, first, trace.what, sizeof trace.what) && count(all, trace.what, true);
	default:
		return complain(all, "", "this command is not for this host");
	}
}

void nopal_traces_command(struct nopal_traces *all, const char *line, uint32_t length)
{
	struct nopal_control command;
	if (!nopal_control_parse(line, length, &command)) {
		nopal_traces_say(all, "error: \"");
		all->say(line, length);
		say_words(all, "\": expected ", command.expected, command.bad.begin < command.bad.end ? ", found \"" : "\n");
		if (command.bad.begin < command.bad.end) {
			all->say(line + command.bad.begin, command.bad.end - command.bad.begin);
			nopal_traces_say(all, "\"\n");
		}
	} else if (length ? obey(all, line, &command) : show(all)) {
		nopal_traces_say(all, "ok\n");
	}
}
