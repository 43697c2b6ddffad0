/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Each row of the grammar is matched against the line; the words that the rows that came furthest need next are the
 * expected ones.
 */
#include "command_parser.h"

/*
 * Words in lower case stand for themselves. The arguments WHAT (locations), IDS (numbers), ARGS (fetched values),
 * EVENT, COND and ACTION are one or more words, up to the next lower-case word of the row; all others are one word. A
 * group in brackets is optional; of [a|b], one is taken. If a line matches two rows, the first counts. A row holds its
 * text, not its address: the core has no data that must be relocated.
 */
struct row {
	uint8_t command;        /* enum nopal_command */
	char form[63];
};

static const struct row rows[] = {
	{ NOPAL_COMMAND_TRACE_NEW, "trace WHAT new NAME" },
	{ NOPAL_COMMAND_TRACE_ON, "trace NAME on" },
	{ NOPAL_COMMAND_TRACE_OFF, "trace NAME off" },
	{ NOPAL_COMMAND_TRACE_COUNT, "trace NAME count" },
	{ NOPAL_COMMAND_TRACE_REMOVE, "trace NAME remove" },
	{ NOPAL_COMMAND_MARK_ON, "mark NAME on" },
	{ NOPAL_COMMAND_MARK_OFF, "mark NAME off" },
	{ NOPAL_COMMAND_SIZE, "size NUMBER" },
	{ NOPAL_COMMAND_SIZE, "logsize NUMBER" },
	{ NOPAL_COMMAND_WATCH, "watch IDS" },
	{ NOPAL_COMMAND_WATCH_CHILDREN, "watch IDS children" },
	{ NOPAL_COMMAND_PROCESSORS, "processors IDS" },
	{ NOPAL_COMMAND_PROCESSORS_ALL, "processors all" },
	{ NOPAL_COMMAND_START, "start" },
	{ NOPAL_COMMAND_STOP, "stop" },
	{ NOPAL_COMMAND_RESET, "reset" },
	{ NOPAL_COMMAND_QUERY, "query WHAT" },
	{ NOPAL_COMMAND_TESTTRACEIN, "testtracein WHAT" },
	{ NOPAL_COMMAND_UNIFORM_ON, "uniform on" },
	{ NOPAL_COMMAND_UNIFORM_OFF, "uniform off" },
	{ NOPAL_COMMAND_BUDGET_OFF, "budget off" },
	{ NOPAL_COMMAND_BUDGET, "budget SHARE" },
	{ NOPAL_COMMAND_ARGUMENTS_ON, "arguments on" },
	{ NOPAL_COMMAND_ARGUMENTS_OFF, "arguments off" },
	{ NOPAL_COMMAND_PROBE_ON, "probe NAME on" },
	{ NOPAL_COMMAND_PROBE_OFF, "probe NAME off" },
	{ NOPAL_COMMAND_PROBE_REMOVE, "probe NAME remove" },
	{ NOPAL_COMMAND_PROBE, "probe [return|breakpoint|auto] WHERE [new NAME] [fetch ARGS]" },
	{ NOPAL_COMMAND_SECTION_NEW, "section FROM TO new NAME" },
	{ NOPAL_COMMAND_SECTION_REMOVE, "section NAME remove" },
	{ NOPAL_COMMAND_TRACER_ON, "tracer NAME on" },
	{ NOPAL_COMMAND_TRACER_OFF, "tracer NAME off" },
	{ NOPAL_COMMAND_TRACER_RESET, "tracer NAME reset" },
	{ NOPAL_COMMAND_TRACER_KEEP, "tracer NAME keep NUMBER" },
	{ NOPAL_COMMAND_THRESHOLD, "threshold NUMBER" },
	{ NOPAL_COMMAND_LATENCY, "latency NAME" },
	{ NOPAL_COMMAND_WHEN, "when EVENT [if COND] do ACTION [new NAME]" },
	{ NOPAL_COMMAND_WHEN_REMOVE, "when NAME remove" },
	{ NOPAL_COMMAND_SNAPSHOT, "snapshot" },
};
#define ROWS (sizeof rows / sizeof rows[0])

static const struct row actions[] = {
	{ NOPAL_COMMAND_SNAPSHOT, "snapshot" },
	{ NOPAL_COMMAND_START, "start" },
	{ NOPAL_COMMAND_STOP, "stop" },
	{ NOPAL_COMMAND_TRACE_ON, "trace NAME on" },
	{ NOPAL_COMMAND_TRACE_OFF, "trace NAME off" },
	{ NOPAL_COMMAND_MARK, "mark" },
	{ NOPAL_COMMAND_COUNT, "count" },
	{ NOPAL_COMMAND_DETACH, "detach" },
};
#define ACTIONS (sizeof actions / sizeof actions[0])

const char *nopal_control_form(uint32_t row)
{
	return row < ROWS ? rows[row].form : 0;
}

/* ---- words ---- */

/* A word of a line; in double quotes, it may hold blanks. */
struct word {
	const char *text;
	uint32_t length;
	struct nopal_span whole;        /* with its quotes; at the end of the line, empty */
	bool quoted;
	bool present;
	bool broken;                    /* no closing quote, or an invalid character */
};

static bool is_blank(char character)
{
	return character == ' ' || character == '\t' || character == '\r';
}

/* A comment begins where a word could. */
static struct word word_at(const char *line, struct nopal_span rest)
{
	uint32_t at = rest.begin;
	while (at < rest.end && is_blank(line[at]))
		at++;
	struct word word = { .whole = { at, at } };
	if (at == rest.end || line[at] == '#')
		return word;
	word.present = true;
	word.quoted = line[at] == '"';
	uint32_t begin = at + word.quoted;
	for (at = begin; at < rest.end && (word.quoted ? line[at] != '"' : !is_blank(line[at])); at++)
		word.broken |= (unsigned char)line[at] < ' ' || line[at] == 0x7f;
	word.text = line + begin;
	word.length = at - begin;
	if (word.quoted) {
		at += at < rest.end;
		word.broken |= at - begin == word.length || (at < rest.end && !is_blank(line[at]));
	}
	word.whole.end = at;
	return word;
}

static bool same_text(struct word word, const char *text, uint32_t length)
{
	uint32_t at = 0;
	while (at < word.length && at < length && word.text[at] == text[at])
		at++;
	return at == word.length && at == length;
}

static uint32_t length_of(const char *text)
{
	uint32_t length = 0;
	while (text[length])
		length++;
	return length;
}

static bool equals(struct word word, const char *text)
{
	return same_text(word, text, length_of(text));
}

/* ---- numbers ---- */

/* The value of a digit in bases up to 16; 16 for other characters. */
static uint32_t digit(char character)
{
	if (character >= '0' && character <= '9')
		return (uint32_t)(character - '0');
	char small = (char)(character | 0x20);
	return small >= 'a' && small <= 'f' ? (uint32_t)(small - 'a') + 10 : 16;
}

/* False if the text is not entirely a number, or is above `highest`. */
static bool number(const char *text, uint32_t length, uint32_t base, uint64_t highest, uint64_t *value)
{
	*value = 0;
	for (uint32_t at = 0; at < length; at++) {
		uint32_t next = digit(text[at]);
		if (next >= base || *value > (highest - next) / base)
			return false;
		*value = *value * base + next;
	}
	return length > 0;
}

static bool decimal(struct word word, uint32_t *value)
{
	uint64_t wide;
	bool fits = number(word.text, word.length, 10, UINT32_MAX, &wide);
	*value = (uint32_t)wide;
	return fits;
}

/* ---- forms ---- */

/*
 * A form is matched without its brackets, for one choice of its groups after the other. The first group changes last.
 * Each group is tried before it is left out, unless a lower-case word follows it: the row needs that word, so it is
 * expected first if neither is found.
 */
struct form {
	const char *at;
	uint32_t choice;                /* of the groups that are still to come */
	uint32_t arguments;             /* groups passed so far, and their alternatives, taken or not */
	uint32_t alternatives;
	uint32_t present;               /* a bit for each alternative taken */
};

static bool is_argument(char first)
{
	return first >= 'A' && first <= 'Z';
}

static const char *behind(const char *text, char last)
{
	while (*text && *text != last)
		text++;
	return text + !!*text;
}

/* The length of a group, from its bracket on. */
static uint32_t alternatives_of(const char *group)
{
	uint32_t count = 1;
	for (; *group && *group != ']'; group++)
		count += *group == '|';
	return count;
}

/* The number of alternatives in a form, or in the rest of one. */
static uint32_t choices_of(const char *form)
{
	uint32_t choices = 1;
	for (; *form; form++)
		if (*form == '[')
			choices *= alternatives_of(form) + 1;
	return choices;
}

/* At a bracket: continues in the group, or behind it. */
static void choose(struct form *form)
{
	uint32_t count = alternatives_of(form->at);
	const char *rest = behind(form->at, ']');
	bool is_left_first = *rest == ' ' && rest[1] >= 'a' && rest[1] <= 'z';
	uint32_t choices = choices_of(rest), taken = form->choice / choices;
	form->choice %= choices;
	taken = is_left_first ? (taken ? taken - 1 : count) : taken;

	uint32_t first = form->alternatives;
	form->alternatives += count;
	if (taken == count) {
		for (; form->at < rest; form->at++)
			form->arguments += is_argument(form->at[1]) && form->at[0] == ' ';
		return;
	}
	form->present |= 1u << (first + taken);
	form->at++;
	while (taken--)
		form->at = behind(form->at, '|');
}

/* The next word of a form, and its argument, if it is one. */
static struct word next_word(struct form *form, uint32_t *argument)
{
	while (*form->at == ' ' || *form->at == ']' || *form->at == '[' || *form->at == '|') {
		if (*form->at == '[')
			choose(form);
		else if (*form->at == '|')
			form->at = behind(form->at, ']');
		else
			form->at++;
	}
	struct word word = { .text = form->at, .present = *form->at };
	while (form->at[word.length] && form->at[word.length] != ' ' && form->at[word.length] != ']' && form->at[word.length] != '|')
		word.length++;
	form->at += word.length;
	*argument = form->arguments;
	form->arguments += word.present && is_argument(word.text[0]);
	return word;
}

/* ---- rows ---- */

static bool takes_several(struct word form)
{
	return equals(form, "WHAT") || equals(form, "IDS") || equals(form, "ARGS") || equals(form, "EVENT") || equals(form, "COND") ||
	       equals(form, "ACTION");
}

/* The words between the parts of a trigger may occur within a part only in quotes. */
static bool divides(struct word word)
{
	return !word.quoted && (equals(word, "if") || equals(word, "do"));
}

/* Quotes make any word an argument. */
static bool fits(struct word form, struct word word)
{
	uint32_t value;
	if (!form.present || !word.present || word.broken || !word.length)
		return false;
	if (!is_argument(form.text[0]))
		return !word.quoted && same_text(word, form.text, form.length);
	if (equals(form, "NUMBER") || equals(form, "IDS"))
		return decimal(word, &value);
	return !(equals(form, "EVENT") || equals(form, "COND") || equals(form, "ACTION")) || !divides(word);
}

/* How far a form matches a line. */
struct match {
	bool complete;
	uint32_t fitting;               /* words of the form that matched */
	struct word bad;                /* the first word that does not match, and the word of the form expected there */
	struct word expected;
};

static struct match match(struct form *form, const char *line, struct nopal_span rest, struct nopal_span *arguments)
{
	uint32_t number, next_number, fitting = 0;
	struct word wanted = next_word(form, &number), word = word_at(line, rest);
	while (fits(wanted, word)) {
		struct word next = next_word(form, &next_number);
		bool several = takes_several(wanted);
		struct nopal_span argument = { .begin = word.whole.begin + (word.quoted && !several) };
		do {
			argument.end = word.whole.end - (word.quoted && !several);
			rest.begin = word.whole.end;
			word = word_at(line, rest);
		} while (several && !fits(next, word) && fits(wanted, word));
		if (is_argument(wanted.text[0]))
			arguments[number] = argument;
		wanted = next;
		number = next_number;
		fitting++;
	}
	return (struct match){ !wanted.present && !word.present, fitting, word, wanted };
}

/* ---- what was expected ---- */

/* Lists the words expected next by the matches that came furthest, and the first word that none of them accepts. */
struct expected {
	uint32_t fitting;
	uint32_t count;
	struct word words[ROWS];
	struct nopal_span bad;
};

static void add(struct expected *expected, const struct match *match)
{
	if (match->fitting < expected->fitting)
		return;
	if (match->fitting > expected->fitting)
		expected->count = 0;
	expected->fitting = match->fitting;
	if (!expected->count || match->bad.whole.begin < expected->bad.begin)
		expected->bad = match->bad.whole;
	uint32_t known = 0;
	while (known < expected->count && !same_text(match->expected, expected->words[known].text, expected->words[known].length))
		known++;
	if (known == expected->count && known < ROWS)
		expected->words[expected->count++] = match->expected;
}

static void append(char *list, const char *text, uint32_t length)
{
	uint32_t end = length_of(list);
	for (uint32_t at = 0; at < length && end < NOPAL_CONTROL_EXPECTED - 1; at++)
		list[end++] = text[at];
	list[end] = 0;
}

static void explain(const struct expected *expected, struct nopal_control *parsed)
{
	parsed->bad = expected->bad;
	for (uint32_t at = 0; at < expected->count; at++) {
		struct word word = expected->words[at];
		if (at)
			append(parsed->expected, at + 1 == expected->count ? " or " : ", ", at + 1 == expected->count ? 4 : 2);
		if (word.present)
			append(parsed->expected, word.text, word.length);
		else
			append(parsed->expected, "the end of the line", 19);
	}
}

static bool parse(const struct row *table, uint32_t length, const char *line, struct nopal_span rest,
		  struct nopal_control *parsed)
{
	struct expected expected;
	expected.fitting = expected.count = 0;
	for (uint32_t row = 0, choice = 0; row < length;) {
		struct form form = { .at = table[row].form, .choice = choice };
		for (uint32_t i = 0; i < NOPAL_CONTROL_ARGUMENTS; i++)
			parsed->arguments[i] = (struct nopal_span){ 0, 0 };
		struct match found = match(&form, line, rest, parsed->arguments);
		if (found.complete) {
			parsed->command = table[row].command;
			parsed->present = form.present;
			return true;
		}
		add(&expected, &found);
		/* All choices begin with the same word. */
		if (found.fitting && ++choice < choices_of(table[row].form))
			continue;
		row++;
		choice = 0;
	}
	explain(&expected, parsed);
	return false;
}

bool nopal_control_parse(const char *line, uint32_t length, struct nopal_control *parsed)
{
	struct nopal_span whole = { 0, length };
	*parsed = (struct nopal_control){ .command = NOPAL_COMMAND_NONE };
	return !word_at(line, whole).present || parse(rows, ROWS, line, whole, parsed);
}

bool nopal_action_parse(const char *line, struct nopal_span action, struct nopal_control *parsed)
{
	*parsed = (struct nopal_control){ .command = NOPAL_COMMAND_NONE };
	return parse(actions, ACTIONS, line, action, parsed);
}

/* ---- locations and numbers ---- */

#define LONG_ADDRESS 8  /* as many hexadecimal digits are an address even without 0x */

static bool marked_address(const char *text, uint32_t length, uint64_t *value)
{
	return length > 2 && text[0] == '0' && text[1] == 'x' && number(text + 2, length - 2, 16, UINT64_MAX, value);
}

static bool address(const char *text, uint32_t length, uint64_t *value)
{
	if (marked_address(text, length, value))
		return true;
	return (length >= LONG_ADDRESS || (length && digit(text[0]) < 10)) && number(text, length, 16, UINT64_MAX, value);
}

/* The position of the last `character` in the text; its length if there is none. */
static uint32_t last_of(const char *text, uint32_t length, char character)
{
	uint32_t at = length;
	while (at && text[at - 1] != character)
		at--;
	return at ? at - 1 : length;
}

/* MODULE+0xADDRESS, or MODULE+0xSTART-0xEND, for which *last is not 0. */
static bool in_module(const char *text, uint32_t length, uint32_t *module, uint64_t *first, uint64_t *last)
{
	*module = last_of(text, length, '+');
	uint32_t from = *module + 1;
	if (!*module || from >= length)
		return false;
	uint32_t dash = last_of(text + from, length - from, '-') + from;
	*last = 0;
	if (dash < length && !(marked_address(text + dash + 1, length - dash - 1, last) && *last))
		return false;
	return marked_address(text + from, dash - from, first);
}

/* FILE:LINE; C++ names have two colons. */
static bool in_file(const char *text, uint32_t length, uint32_t *file, uint64_t *line)
{
	*file = last_of(text, length, ':');
	uint32_t from = *file + 1;
	return *file && from < length && text[*file - 1] != ':' &&
	       number(text + from, length - from, 10, UINT32_MAX, line);
}

/* A single location: a word, and the position of its text in the line. */
static struct nopal_location location_of(struct word word, uint32_t begin)
{
	struct nopal_location location = { .text = { begin, begin + word.length } };
	uint32_t named;
	if (!word.quoted && address(word.text, word.length, &location.first)) {
		location.kind = NOPAL_LOCATION_ADDRESS;
	} else if (in_module(word.text, word.length, &named, &location.first, &location.last)) {
		location.kind = location.last ? NOPAL_LOCATION_RANGE_IN_MODULE : NOPAL_LOCATION_IN_MODULE;
		location.text.end = begin + named;
	} else if (in_file(word.text, word.length, &named, &location.first)) {
		location.kind = NOPAL_LOCATION_LINE;
		location.last = 0;
		location.text.end = begin + named;
	} else {
		location.kind = NOPAL_LOCATION_NAMES;
		location.first = location.last = 0;
	}
	return location;
}

bool nopal_location_next(const char *line, struct nopal_span *rest, struct nopal_location *location)
{
	struct word word = word_at(line, *rest);
	if (!word.present)
		return false;
	rest->begin = word.whole.end;
	bool excluded = word.length > 1 && word.text[0] == '!';
	word.text += excluded;
	word.length -= excluded;
	*location = location_of(word, (uint32_t)(word.text - line));
	location->excluded = excluded;

	struct word end = word_at(line, *rest);
	uint64_t last;
	if (location->kind == NOPAL_LOCATION_ADDRESS && !end.quoted && address(end.text, end.length, &last)) {
		location->kind = NOPAL_LOCATION_RANGE;
		location->last = last;
		rest->begin = end.whole.end;
	}
	return true;
}

bool nopal_number_next(const char *line, struct nopal_span *rest, uint32_t *number)
{
	struct word word = word_at(line, *rest);
	rest->begin = word.whole.end;
	return word.present && decimal(word, number);
}
