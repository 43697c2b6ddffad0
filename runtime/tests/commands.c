/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The control language.
 */
#include "command_parser.h"
#include "world.h"

#include <time.h>

static struct nopal_control parsed;

static bool parse(const char *line)
{
	snprintf(circumstances, sizeof circumstances, "%s", line);
	return nopal_control_parse(line, (uint32_t)strlen(line), &parsed);
}

/* One argument of `line`, as text. */
static const char *argument(const char *line, uint32_t which)
{
	static char text[256];
	struct nopal_span span = parsed.arguments[which];
	snprintf(text, sizeof text, "%.*s", (int)(span.end - span.begin), line + span.begin);
	return text;
}

static void obeyed(const char *line, uint32_t command, const char *first, const char *second)
{
	CHECK(parse(line));
	CHECK(parsed.command == command);
	CHECK(!strcmp(argument(line, 0), first));
	CHECK(!strcmp(argument(line, 1), second));
}

static void probe(const char *line, uint32_t present, const char *where, const char *name, const char *fetched)
{
	obeyed(line, NOPAL_COMMAND_PROBE, where, name);
	CHECK(parsed.present == present);
	CHECK(!strcmp(argument(line, 2), fetched));
}

static void trigger(const char *line, uint32_t present, const char *event, const char *condition, const char *action,
		    const char *name)
{
	obeyed(line, NOPAL_COMMAND_WHEN, event, condition);
	CHECK(parsed.present == present);
	CHECK(!strcmp(argument(line, 2), action));
	CHECK(!strcmp(argument(line, 3), name));
}

static void every_command(void)
{
	obeyed("trace 0xf00049f4 0xf0004b38 new faults", NOPAL_COMMAND_TRACE_NEW, "0xf00049f4 0xf0004b38", "faults");
	obeyed("  trace\tparse_* new p\r", NOPAL_COMMAND_TRACE_NEW, "parse_*", "p");
	obeyed("trace a@libz* !b \"operator new*\" new n # why", NOPAL_COMMAND_TRACE_NEW, "a@libz* !b \"operator new*\"",
	       "n");
	obeyed("trace faults on", NOPAL_COMMAND_TRACE_ON, "faults", "");
	obeyed("trace faults off", NOPAL_COMMAND_TRACE_OFF, "faults", "");
	obeyed("trace faults count", NOPAL_COMMAND_TRACE_COUNT, "faults", "");
	obeyed("trace faults remove", NOPAL_COMMAND_TRACE_REMOVE, "faults", "");
	obeyed("mark net_* on", NOPAL_COMMAND_MARK_ON, "net_*", "");
	obeyed("mark \"net rx\" off", NOPAL_COMMAND_MARK_OFF, "net rx", "");
	obeyed("size 16", NOPAL_COMMAND_SIZE, "16", "");
	obeyed("logsize 16", NOPAL_COMMAND_SIZE, "16", "");
	obeyed("watch 0", NOPAL_COMMAND_WATCH, "0", "");
	obeyed("watch 12 13  14", NOPAL_COMMAND_WATCH, "12 13  14", "");
	obeyed("watch 12 13 children", NOPAL_COMMAND_WATCH_CHILDREN, "12 13", "");
	obeyed("processors 0 2", NOPAL_COMMAND_PROCESSORS, "0 2", "");
	obeyed("processors all", NOPAL_COMMAND_PROCESSORS_ALL, "", "");
	obeyed("start", NOPAL_COMMAND_START, "", "");
	obeyed("stop", NOPAL_COMMAND_STOP, "", "");
	obeyed("reset", NOPAL_COMMAND_RESET, "", "");
	obeyed("query main.c:12", NOPAL_COMMAND_QUERY, "main.c:12", "");
	obeyed("testtracein main", NOPAL_COMMAND_TESTTRACEIN, "main", "");
	obeyed("section get.arg1 put.arg1 new request", NOPAL_COMMAND_SECTION_NEW, "get.arg1", "put.arg1");
	obeyed("section request remove", NOPAL_COMMAND_SECTION_REMOVE, "request", "");
	obeyed("tracer lockhold on", NOPAL_COMMAND_TRACER_ON, "lockhold", "");
	obeyed("tracer lockhold off", NOPAL_COMMAND_TRACER_OFF, "lockhold", "");
	obeyed("tracer lockhold reset", NOPAL_COMMAND_TRACER_RESET, "lockhold", "");
	obeyed("tracer request keep 20", NOPAL_COMMAND_TRACER_KEEP, "request", "20");
	obeyed("threshold 500", NOPAL_COMMAND_THRESHOLD, "500", "");
	obeyed("latency lockhold", NOPAL_COMMAND_LATENCY, "lockhold", "");
	obeyed("uniform on", NOPAL_COMMAND_UNIFORM_ON, "", "");
	obeyed("uniform off", NOPAL_COMMAND_UNIFORM_OFF, "", "");
	obeyed("budget 5%", NOPAL_COMMAND_BUDGET, "5%", "");
	obeyed("budget off", NOPAL_COMMAND_BUDGET_OFF, "", "");
	probe("probe f+0x1c", 0, "f+0x1c", "", "");
	probe("probe f new p", NOPAL_PROBE_NAMED, "f", "p", "");
	probe("probe f fetch $di +8($si):string", NOPAL_PROBE_FETCHES, "f", "", "$di +8($si):string");
	probe("probe f new p fetch $di", NOPAL_PROBE_NAMED | NOPAL_PROBE_FETCHES, "f", "p", "$di");
	probe("probe return f", NOPAL_PROBE_RETURN, "f", "", "");
	probe("probe return f new p", NOPAL_PROBE_RETURN | NOPAL_PROBE_NAMED, "f", "p", "");
	probe("probe return f fetch $ax # why", NOPAL_PROBE_RETURN | NOPAL_PROBE_FETCHES, "f", "", "$ax");
	probe("probe auto f new p", NOPAL_PROBE_AUTO | NOPAL_PROBE_NAMED, "f", "p", "");
	probe("probe breakpoint f new p fetch $ax", NOPAL_PROBE_BREAKPOINT | NOPAL_PROBE_NAMED | NOPAL_PROBE_FETCHES, "f", "p",
	      "$ax");
	/* Functions have these names; a word is taken for an optional part where possible. */
	probe("probe return", 0, "return", "", "");
	probe("probe return new p", NOPAL_PROBE_NAMED, "return", "p", "");
	probe("probe return fetch fetch a", NOPAL_PROBE_RETURN | NOPAL_PROBE_FETCHES, "fetch", "", "a");
	probe("probe \"return\" fetch a", NOPAL_PROBE_FETCHES, "return", "", "a");
	obeyed("probe p on", NOPAL_COMMAND_PROBE_ON, "p", "");
	obeyed("probe p off", NOPAL_COMMAND_PROBE_OFF, "p", "");
	obeyed("probe p remove", NOPAL_COMMAND_PROBE_REMOVE, "p", "");
	obeyed("snapshot", NOPAL_COMMAND_SNAPSHOT, "", "");
	trigger("when return f@libz* g do trace p on", 0, "return f@libz* g", "", "trace p on", "");
	trigger("when f do count new n", NOPAL_WHEN_NAMED, "f", "", "count", "n");
	trigger("when f if hits % 100 == 0 do mark", NOPAL_WHEN_IF, "f", "hits % 100 == 0", "mark", "");
	trigger("when f if a==\"x y\" do mark new n", NOPAL_WHEN_IF | NOPAL_WHEN_NAMED, "f", "a==\"x y\"", "mark", "n");
	obeyed("when n remove", NOPAL_COMMAND_WHEN_REMOVE, "n", "");
}

static void every_action(void)
{
	static const struct {
		const char *line;
		uint32_t command;
	} actions[] = {
		{ "start", NOPAL_COMMAND_START },         { "stop", NOPAL_COMMAND_STOP },
		{ "trace p on", NOPAL_COMMAND_TRACE_ON }, { "trace \"p q\" off", NOPAL_COMMAND_TRACE_OFF },
		{ "snapshot", NOPAL_COMMAND_SNAPSHOT },   { "mark", NOPAL_COMMAND_MARK },
		{ "count", NOPAL_COMMAND_COUNT },         { "detach", NOPAL_COMMAND_DETACH },
	};
	for (unsigned i = 0; i < sizeof actions / sizeof *actions; i++) {
		char line[64];
		snprintf(line, sizeof line, "when f do %s # x", actions[i].line);
		CHECK(parse(line));
		struct nopal_span action = parsed.arguments[2];
		CHECK(nopal_action_parse(line, action, &parsed));
		CHECK(parsed.command == actions[i].command);
	}
	struct nopal_span action = { 10, 20 };
	CHECK(!nopal_action_parse("when f do trace p onn", (struct nopal_span){ 10, 21 }, &parsed));
	CHECK(!strcmp(parsed.expected, "on or off") && parsed.bad.begin == 18 && parsed.bad.end == 21);
	CHECK(!nopal_action_parse("when f do uniform on", action, &parsed));
	CHECK(!strcmp(parsed.expected, "snapshot, start, stop, trace, mark, count or detach"));
}

/* The words of a form as a command: with the first alternative of each of its groups, or without them. */
static void fill_in(const char *form, bool with_groups, char *line)
{
	char word[32];
	uint32_t length = 0;
	bool in_group = false, skipped = false;
	for (; *form; form++) {
		in_group |= *form == '[';
		skipped |= *form == '|';
		if (*form == ']')
			in_group = skipped = false;
		if (*form == '|' || *form == '[' || *form == ']' || skipped || (in_group && !with_groups))
			continue;
		if (sscanf(form, "%31[A-Z]", word) == 1) {
			bool number = !strcmp(word, "NUMBER") || !strcmp(word, "IDS");
			length += (uint32_t)sprintf(line + length, "%s", number ? "1" : word);
			form += strlen(word) - 1;
		} else {
			line[length++] = *form;
		}
	}
	line[length] = 0;
}

/* All rows of the grammar are commands when their arguments are filled in. */
static void every_row(void)
{
	uint64_t seen = 0;
	for (uint32_t row = 0; nopal_control_form(row); row++) {
		char with[64], without[64];
		fill_in(nopal_control_form(row), true, with);
		fill_in(nopal_control_form(row), false, without);
		CHECK(parse(with));
		uint32_t command = parsed.command;
		CHECK(!parsed.present == !strcmp(with, without));
		CHECK(parse(without));
		CHECK(parsed.command == command && !parsed.present);
		seen |= 1ull << command;
	}
	CHECK(seen == (2ull << NOPAL_COMMAND_LATENCY) - 2);
}

static void nothing_to_do(void)
{
	const char *const lines[] = { "", "  \t", "#", "  # trace p on", "#tracehits 9918, in queue 9917" };
	for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++) {
		CHECK(parse(lines[i]));
		CHECK(parsed.command == NOPAL_COMMAND_NONE);
	}
}

static void words_of_the_grammar_as_names(void)
{
	obeyed("trace on on", NOPAL_COMMAND_TRACE_ON, "on", "");
	obeyed("trace new new new", NOPAL_COMMAND_TRACE_NEW, "new", "new");
	obeyed("trace trace \"new\" new on", NOPAL_COMMAND_TRACE_NEW, "trace \"new\"", "on");
	obeyed("trace \"a b\" remove", NOPAL_COMMAND_TRACE_REMOVE, "a b", "");
	obeyed("trace a#b on", NOPAL_COMMAND_TRACE_ON, "a#b", "");
}

static void refused(const char *line, const char *bad, const char *expected)
{
	CHECK(!parse(line));
	struct nopal_span span = parsed.bad;
	CHECK(span.end - span.begin == strlen(bad));
	CHECK(!strncmp(line + span.begin, bad, strlen(bad)));
	CHECK(!strcmp(parsed.expected, expected));
}

static void what_was_expected(void)
{
	refused("tarce p on", "tarce",
		"trace, mark, size, logsize, watch, processors, start, stop, reset, query, testtracein, uniform, budget, arguments, probe, section, "
		"tracer, threshold, latency, when or snapshot");
	refused("trace", "", "WHAT or NAME");
	refused("trace p", "", "new, on, off, count or remove");
	refused("trace p onn", "onn", "new, on, off, count or remove");
	refused("trace p new", "", "NAME");
	refused("trace p new q r", "r", "the end of the line");
	refused("trace p on q", "q", "the end of the line");
	refused("trace \"p q new r", "\"p q new r", "WHAT or NAME");
	refused("trace \"\" on", "\"\"", "WHAT or NAME");
	refused("trace p\001 on", "p\001", "WHAT or NAME");
	refused("size", "", "NUMBER");
	refused("size x", "x", "NUMBER");
	refused("size 4294967296", "4294967296", "NUMBER");
	refused("size 0x10", "0x10", "NUMBER");
	refused("watch 12 sons", "sons", "the end of the line or children");
	refused("watch children", "children", "IDS");
	refused("processors none", "none", "IDS or all");
	refused("processors 1 all", "all", "the end of the line");
	refused("uniform", "", "on or off");
	refused("budget", "", "off or SHARE");
	refused("probe", "", "NAME, return, breakpoint, auto or WHERE");
	refused("probe f x", "x", "on, off, remove, new, fetch or the end of the line");
	refused("probe f new p x", "x", "fetch or the end of the line");
	refused("probe f fetch", "", "ARGS");
	refused("when", "", "EVENT or NAME");
	refused("when f", "", "do, if or remove");
	refused("when f then count", "then", "do, if or remove");
	refused("when f if do count", "do", "COND");
	refused("when f do", "", "ACTION");
	refused("when do", "", "remove");
	refused("start now", "now", "the end of the line");
	refused("\"start\"", "\"start\"",
		"trace, mark, size, logsize, watch, processors, start, stop, reset, query, testtracein, uniform, budget, arguments, probe, section, "
		"tracer, threshold, latency, when or snapshot");
}

static void location(const char *line, uint32_t kind, const char *text, uint64_t first, uint64_t last)
{
	struct nopal_span rest = { 0, (uint32_t)strlen(line) };
	struct nopal_location found;
	snprintf(circumstances, sizeof circumstances, "%s", line);
	CHECK(nopal_location_next(line, &rest, &found));
	CHECK(found.kind == kind);
	CHECK(found.first == first);
	CHECK(found.last == last);
	CHECK(found.excluded == (strlen(line) > 1 && line[line[0] == '"'] == '!'));
	bool named = kind != NOPAL_LOCATION_ADDRESS && kind != NOPAL_LOCATION_RANGE;
	CHECK(!named || (found.text.end - found.text.begin == strlen(text) &&
			 !strncmp(line + found.text.begin, text, strlen(text))));
	CHECK(!nopal_location_next(line, &rest, &found));
}

static void every_location(void)
{
	location("0xf00049f4 0xf0004b38", NOPAL_LOCATION_RANGE, "", 0xf00049f4, 0xf0004b38);
	location("f0004944 F0004A88", NOPAL_LOCATION_RANGE, "", 0xf0004944, 0xf0004a88);
	location("17a099 17a0a2", NOPAL_LOCATION_RANGE, "", 0x17a099, 0x17a0a2);
	location("!17a099 17a0a2", NOPAL_LOCATION_RANGE, "", 0x17a099, 0x17a0a2);
	location("ffffffffffffffff", NOPAL_LOCATION_ADDRESS, "", UINT64_MAX, 0);
	location("10000000000000000", NOPAL_LOCATION_NAMES, "10000000000000000", 0, 0);
	location("0xadd", NOPAL_LOCATION_ADDRESS, "", 0xadd, 0);
	location("add", NOPAL_LOCATION_NAMES, "add", 0, 0);
	location("0x", NOPAL_LOCATION_NAMES, "0x", 0, 0);
	location("\"17a099\"", NOPAL_LOCATION_NAMES, "17a099", 0, 0);
	location("prog+0x11e0", NOPAL_LOCATION_IN_MODULE, "prog", 0x11e0, 0);
	location("libstdc++.so.6+0x11e0", NOPAL_LOCATION_IN_MODULE, "libstdc++.so.6", 0x11e0, 0);
	location("prog+0x11e0-0x1250", NOPAL_LOCATION_RANGE_IN_MODULE, "prog", 0x11e0, 0x1250);
	location("a-b+0x1-0x2", NOPAL_LOCATION_RANGE_IN_MODULE, "a-b", 1, 2);
	location("prog+0x1-2", NOPAL_LOCATION_NAMES, "prog+0x1-2", 0, 0);
	location("prog+0x1-0x0", NOPAL_LOCATION_NAMES, "prog+0x1-0x0", 0, 0);
	location("prog+11e0", NOPAL_LOCATION_NAMES, "prog+11e0", 0, 0);
	location("operator++", NOPAL_LOCATION_NAMES, "operator++", 0, 0);
	location("src/main.c:120", NOPAL_LOCATION_LINE, "src/main.c", 120, 0);
	location("\"my file.c:7\"", NOPAL_LOCATION_LINE, "my file.c", 7, 0);
	location("ns::f", NOPAL_LOCATION_NAMES, "ns::f", 0, 0);
	location("ns::7", NOPAL_LOCATION_NAMES, "ns::7", 0, 0);
	location("main.c:", NOPAL_LOCATION_NAMES, "main.c:", 0, 0);
	location("!parse_*@libz*", NOPAL_LOCATION_NAMES, "parse_*@libz*", 0, 0);
	location("\"!operator new*\" # not these", NOPAL_LOCATION_NAMES, "operator new*", 0, 0);
	location("!", NOPAL_LOCATION_NAMES, "!", 0, 0);
}

static void several_locations(void)
{
	const char line[] = "17a099 17a0a2 17a2cf main a+0x1 a+0x2 !x.c:1";
	const uint32_t kinds[] = { NOPAL_LOCATION_RANGE,     NOPAL_LOCATION_ADDRESS,   NOPAL_LOCATION_NAMES,
				   NOPAL_LOCATION_IN_MODULE, NOPAL_LOCATION_IN_MODULE, NOPAL_LOCATION_LINE };
	struct nopal_span rest = { 0, sizeof line - 1 };
	struct nopal_location found;
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		CHECK(nopal_location_next(line, &rest, &found));
		CHECK(found.kind == kinds[i]);
	}
	CHECK(!nopal_location_next(line, &rest, &found));

	uint32_t number = 0;
	rest = (struct nopal_span){ 6, 13 };
	CHECK(nopal_number_next("watch 12 4000 children", &rest, &number) && number == 12);
	CHECK(nopal_number_next("watch 12 4000 children", &rest, &number) && number == 4000);
	CHECK(!nopal_number_next("watch 12 4000 children", &rest, &number));
}

static bool within(struct nopal_span span, uint32_t length)
{
	return span.begin <= span.end && span.end <= length;
}

/* Random combinations of pieces of commands, and bytes: the parser touches nothing outside of the line (the sanitizer
 * watches a buffer that ends with the line), and all its results lie in the line. */
static void random_lines(void)
{
	static const char *const pieces[] = { "trace", "new",   "on",   " ", " ", " ",    "\"", "!",  "#",   "0x",   "f0004944",
					      "watch", "12",    "size", ":", "+", "main", "lib+0x1", "-0x2", "@",  "\t", "off", "remove",
					      "query", "child", "ren",  "",  "1", "a.c:", "*",  "uniform",
					      "when",  "if",    "do",   "return", "count", "==", "probe", "breakpoint", "fetch" };
	unsigned seed = (unsigned)time(0);
	printf("seed %u\n", seed);
	srand(seed);
	for (unsigned round = 0; round < 200000; round++) {
		char text[256];
		uint32_t length = 0;
		for (unsigned count = (unsigned)rand() % 12; count--;) {
			const char *piece = pieces[(unsigned)rand() % (sizeof pieces / sizeof *pieces)];
			length += (uint32_t)snprintf(text + length, sizeof text - length, "%s", piece);
			if (rand() % 16 == 0)
				text[length++] = (char)rand();
		}
		char *line = malloc(length ? length : 1);
		memcpy(line, text, length);
		bool command = nopal_control_parse(line, length, &parsed);
		CHECK(strlen(parsed.expected) < NOPAL_CONTROL_EXPECTED);
		CHECK(command == !parsed.expected[0]);
		CHECK(command || within(parsed.bad, length));
		for (unsigned i = 0; command && i < NOPAL_CONTROL_ARGUMENTS; i++) {
			struct nopal_control action;
			if (!nopal_action_parse(line, parsed.arguments[i], &action))
				CHECK(within(action.bad, length));
			struct nopal_span rest = parsed.arguments[i];
			CHECK(within(rest, length));
			struct nopal_location found;
			while (nopal_location_next(line, &rest, &found))
				CHECK(within(rest, length) && within(found.text, length));
		}
		free(line);
	}
}

const struct test command_tests[] = {
	{ "every command", every_command },
	{ "every action of a trigger", every_action },
	{ "every row of the grammar", every_row },
	{ "nothing to do", nothing_to_do },
	{ "words of the grammar as names", words_of_the_grammar_as_names },
	{ "what was expected", what_was_expected },
	{ "every location", every_location },
	{ "several locations", several_locations },
	{ "random lines", random_lines },
	{ 0 },
};
