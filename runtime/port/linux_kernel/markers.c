// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Markers of modules (include/nopal.h): found, switched, recorded, and connected to functions of modules.
 *
 * A marker is switched on in this order: the data that it needs, its `call`, its key; and off in reverse. A task may
 * have worked out the values of a marker that is off by then. It finds no `call`, or is in it still: so the memory that
 * `call` needs is freed only after waiting for tasks.
 */
#include <linux/glob.h>
#include <linux/jump_label.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "device.h"
#include "mark.h"
#include "module.h"
#include "nopal.h"
#include "nopal_probe.h"

#define TEXT_AT_MOST 4096
#define PATTERN_BYTES 128
#define PATTERNS_AT_MOST 256
/* A probe that runs into its own marker is cut off there. */
#define NESTED_AT_MOST 8

struct connection {
	nopal_probe *probe;
	void *data;
};

struct connections {
	uint32_t count;
	struct connection each[];
};

/* A marker that is or was in a module. Kept until the end: a trace may still hold its events. */
struct marker {
	struct list_head list;
	struct nopal_marker *place;             /* 0: its module has gone */
	const struct module *module;
	char *module_name;
	struct nopal_description description;   /* copies */
	uint32_t types[2];
	struct nopal_mark mark;
	bool recorded, traced;                  /* by a name; by a tracer. By WRITE_ONCE */
	bool on;
	struct connections __rcu *connections;  /* 0: none */
};
/* All of this under nopal_lock. */
static LIST_HEAD(markers);

/* `mark NAME on` and `mark NAME off`, in this order; the last one that matches a marker decides. */
struct pattern {
	struct list_head list;
	char text[PATTERN_BYTES];
	bool on;
};
static LIST_HEAD(patterns);
static uint32_t pattern_count;
static const char *traced;      /* the pattern of the tracers' markers; 0: none */

static DEFINE_PER_CPU(uint32_t, nested);

/* ---- what a marker calls ---- */

static uint32_t type_of(const struct marker *marker, uint32_t value)
{
	return marker->types[value / 6] >> (value % 6 * 4) & 15;
}

static bool is_readable(uint64_t address, uint32_t bytes)
{
	uint8_t byte;
	for (uint64_t at = address; at < address + bytes; at = (at & PAGE_MASK) + PAGE_SIZE)
		if (!nopal_read(at, &byte, 1))
			return false;
	return true;
}

/* Memory that cannot be read gives the text that the kernel's own printf writes for it. */
static struct nopal_text text_of(uint32_t type, uint64_t value)
{
	static const char null[] = "(null)", fault[] = "(efault)";
	struct nopal_text text;
	if (type == NOPAL_TYPE_BYTES) {
		const struct nopal_bytes *bytes = (const struct nopal_bytes *)value;
		uint32_t length = min_t(size_t, bytes->length, UINT_MAX), kept = min_t(uint32_t, length, NOPAL_TEXT_LIMIT);
		if (!is_readable((uint64_t)bytes->address, kept))
			kept = 0;
		return (struct nopal_text){ (uint64_t)bytes->address, kept, length - kept };
	}
	if (!value)
		return (struct nopal_text){ (uint64_t)null, sizeof null - 1, 0 };
	if (!nopal_measure(value, NOPAL_TEXT_COUNTED, &text))
		return (struct nopal_text){ (uint64_t)fault, sizeof fault - 1, 0 };
	return text;
}

static void record(const struct marker *marker, const uint64_t *values)
{
	unsigned long flags;
	/* This must stay on one processor, like the slow path of a fentry site. */
	raw_local_irq_save(flags);
	nopal_mark(&marker->mark, values, (uint64_t)__builtin_frame_address(0));
	raw_local_irq_restore(flags);
}

static noinline void record_with_text(const struct marker *marker, const uint64_t *values)
{
	struct nopal_text texts[NOPAL_VALUES];
	uint64_t words[NOPAL_VALUES];
	for (uint32_t i = 0; i < (marker->mark.shape & 15); i++) {
		uint32_t type = type_of(marker, i);
		words[i] = values[i];
		if (type == NOPAL_TYPE_STRING || type == NOPAL_TYPE_BYTES) {
			texts[i] = text_of(type, values[i]);
			words[i] = (uint64_t)&texts[i];
		}
	}
	record(marker, words);
}

static void call(struct nopal_marker *place, const uint64_t *values)
{
	preempt_disable_notrace();
	const struct marker *marker = place->host;
	const struct connections *connections = rcu_dereference_sched(marker->connections);
	if (connections) {
		if (this_cpu_inc_return(nested) <= NESTED_AT_MOST)
			for (uint32_t i = 0; i < connections->count; i++)
				connections->each[i].probe(connections->each[i].data, &marker->description, values);
		this_cpu_dec(nested);
	}
	/* A recording has the markers that it names. */
	bool wanted = READ_ONCE(marker->recorded) || (READ_ONCE(marker->traced) && !nopal_context_is_mapped());
	if (wanted && nopal_context_wants()) {
		if (marker->mark.shape >> NOPAL_SHAPE_VALUES)
			record_with_text(marker, values);
		else
			record(marker, values);
	}
	preempt_enable_notrace();
}

/* ---- switching ---- */

/* Switches the marker as its patterns want it. */
static void set(struct marker *marker)
{
	struct nopal_marker *place = marker->place;
	bool on = place && (marker->recorded || marker->traced || rcu_access_pointer(marker->connections));
	if (on == marker->on)
		return;
	marker->on = on;
	if (on) {
		place->host = marker;
		smp_store_release(&place->call, call);
		static_key_slow_inc(&place->key.key);
	} else if (place) {
		static_key_slow_dec(&place->key.key);
		WRITE_ONCE(place->call, 0);
	}
	if (marker->module == THIS_MODULE)
		nopal_event_switch(marker->description.name, on);
}

static bool matches(const char *pattern, const struct marker *marker)
{
	char text[PATTERN_BYTES], *module = text;
	strscpy(text, pattern, sizeof text);
	const char *name = strsep(&module, "@");
	return glob_match(name, marker->description.name) && (!module || glob_match(module, marker->module_name));
}

static void decide(struct marker *marker)
{
	const struct pattern *pattern;
	bool recorded = false, refused = false;
	list_for_each_entry(pattern, &patterns, list)
		if (matches(pattern->text, marker)) {
			recorded = pattern->on;
			refused = !pattern->on;
		}
	WRITE_ONCE(marker->recorded, recorded);
	WRITE_ONCE(marker->traced, traced && !refused && matches(traced, marker));
	set(marker);
}

static void decide_all(void)
{
	struct marker *marker;
	list_for_each_entry(marker, &markers, list)
		decide(marker);
}

static void forget(struct pattern *pattern)
{
	list_del(&pattern->list);
	pattern_count--;
	kfree(pattern);
}

static bool any_is_on(void)
{
	const struct pattern *pattern;
	list_for_each_entry(pattern, &patterns, list)
		if (pattern->on)
			return true;
	return false;
}

int nopal_markers_switch(const char *text, uint32_t length, bool on)
{
	struct pattern *pattern, *next;
	if (length >= PATTERN_BYTES)
		return -ENAMETOOLONG;
	list_for_each_entry_safe(pattern, next, &patterns, list)
		if (strlen(pattern->text) == length && !memcmp(pattern->text, text, length))
			forget(pattern);
	if (on || traced || any_is_on()) {
		if (pattern_count == PATTERNS_AT_MOST)
			return -ENOSPC;
		pattern = kzalloc(sizeof *pattern, GFP_KERNEL);
		if (!pattern)
			return -ENOMEM;
		memcpy(pattern->text, text, length);
		pattern->on = on;
		list_add_tail(&pattern->list, &patterns);
		pattern_count++;
	}
	decide_all();
	if (!traced && !any_is_on())
		nopal_markers_reset();
	return 0;
}

void nopal_markers_reset(void)
{
	struct pattern *pattern, *next;
	list_for_each_entry_safe(pattern, next, &patterns, list)
		forget(pattern);
	decide_all();
}

void nopal_markers_trace(const char *pattern)
{
	traced = pattern;
	if (!traced && !any_is_on())
		nopal_markers_reset();
	decide_all();
}

const struct nopal_description *nopal_marker_of(uint32_t event, const uint32_t **types, bool *is_own)
{
	const struct marker *marker;
	list_for_each_entry(marker, &markers, list)
		if (marker->mark.event == event) {
			*types = marker->types;
			*is_own = marker->module == THIS_MODULE;
			return &marker->description;
		}
	return 0;
}

void nopal_markers_show(struct seq_file *file)
{
	const struct pattern *pattern;
	const struct marker *marker;
	list_for_each_entry(pattern, &patterns, list) {
		uint32_t count = 0;
		list_for_each_entry(marker, &markers, list)
			count += marker->place && matches(pattern->text, marker);
		seq_printf(file, "mark %s %s\n# %s: %u markers\n", pattern->text, pattern->on ? "on" : "off", pattern->text, count);
	}
}

/* ---- modules and their markers ---- */

static void drop(struct marker *marker)
{
	kfree(rcu_access_pointer(marker->connections));
	kfree(marker->module_name);
	kfree(marker->description.name);
	kfree(marker->description.format);
	kfree(marker->description.file);
	kfree(marker);
}

static bool is_known(const struct nopal_marker *place)
{
	const struct marker *marker;
	list_for_each_entry(marker, &markers, list)
		if (marker->place == place)
			return true;
	return false;
}

/* Numbers from the last one down: programs' markers have those from the first one up. */
uint64_t nopal_event_next(uint32_t values, bool has_text)
{
	static uint32_t count;          /* under nopal_lock */
	uint32_t number = NOPAL_EVENT_LIMIT - 1 - count;
	if (number <= NOPAL_EVENT_LIMIT / 2)
		return 0;
	count++;
	return (has_text ? NOPAL_EVENT_VARIABLE : values + 1) << NOPAL_EVENT_WORDS_SHIFT | number;
}

/* Counts the values, and fills in what core needs. False: nopal does not know their types. */
static bool describe(struct marker *marker)
{
	uint32_t count = 0;
	bool has_text = false;
	while (count < NOPAL_VALUES && type_of(marker, count)) {
		uint32_t type = type_of(marker, count);
		bool is_text = type == NOPAL_TYPE_STRING || type == NOPAL_TYPE_BYTES;
		if (type > NOPAL_TYPE_BYTES)
			return false;
		if (is_text)
			marker->mark.shape |= (uint64_t)NOPAL_VALUE_FETCHED << (NOPAL_SHAPE_VALUES + 2 * count);
		has_text |= is_text;
		count++;
	}
	marker->mark.shape |= count;
	marker->mark.event = nopal_event_next(count, has_text);
	return marker->mark.event;
}

static int learn(struct nopal_marker *place, const struct module *module)
{
	struct marker *marker = kzalloc(sizeof *marker, GFP_KERNEL);
	if (!marker)
		return -ENOMEM;
	marker->place = place;
	marker->module = module;
	marker->module_name = kstrdup(module->name, GFP_KERNEL);
	marker->description = (struct nopal_description){
		.name = kstrndup(place->name, TEXT_AT_MOST, GFP_KERNEL),
		.format = kstrndup(place->format, TEXT_AT_MOST, GFP_KERNEL),
		.file = kstrndup(place->file, TEXT_AT_MOST, GFP_KERNEL),
		.line = place->line,
	};
	memcpy(marker->types, place->types, sizeof marker->types);
	bool complete = marker->module_name && marker->description.name && marker->description.format && marker->description.file;
	if (!complete || !describe(marker)) {
		drop(marker);
		return complete ? -EINVAL : -ENOMEM;
	}
	list_add_tail(&marker->list, &markers);
	decide(marker);
	return 0;
}

static void learn_all_of(const struct module *module)
{
#ifdef CONFIG_JUMP_LABEL
	for (uint32_t i = 0; i < module->num_jump_entries; i++) {
		struct static_key *key = jump_entry_key(&module->jump_entries[i]);
		struct nopal_marker *place = container_of(key, struct nopal_marker, key.key);
		unsigned long last = (unsigned long)(place + 1) - 1;
		/* A key of another kind has something else behind it, or nothing. */
		if (within_module((unsigned long)place, module) && within_module(last, module) &&
		    place->magic == NOPAL_MARKER_MAGIC && !is_known(place) && learn(place, module))
			pr_warn("nopal: %s: marker %s cannot be used\n", module->name, place->name);
	}
#endif
}

/* ---- functions of modules ---- */

static struct connections *held(const struct marker *marker)
{
	return rcu_dereference_protected(marker->connections, lockdep_is_held(&nopal_lock));
}

/* Replaces the connections by a copy with one more, or with one less, and waits until no old one runs. With one less,
 * it does not fail. */
static int replace(struct marker *marker, const struct connection *added, const struct connection *removed)
{
	struct connections *before = held(marker);
	uint32_t count = before ? before->count : 0;
	gfp_t how = added ? GFP_KERNEL : GFP_KERNEL | __GFP_NOFAIL;
	struct connections *after = kzalloc(struct_size(after, each, count + 1), how);
	if (!after)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		if (&before->each[i] != removed)
			after->each[after->count++] = before->each[i];
	if (added)
		after->each[after->count++] = *added;
	if (!after->count) {
		kfree(after);
		after = 0;
	}
	rcu_assign_pointer(marker->connections, after);
	set(marker);
	if (before)
		synchronize_rcu();
	kfree(before);
	return 0;
}

static const struct connection *find(const struct marker *marker, const struct connection *wanted)
{
	const struct connections *all = held(marker);
	for (uint32_t i = 0; all && i < all->count; i++)
		if (all->each[i].probe == wanted->probe && all->each[i].data == wanted->data)
			return &all->each[i];
	return 0;
}

static bool is_named(const struct marker *marker, const char *name)
{
	return marker->place && !strcmp(marker->description.name, name);
}

static int disconnect(const char *name, const struct connection *connection)
{
	int failed = -ENOENT;
	struct marker *marker;
	list_for_each_entry(marker, &markers, list) {
		const struct connection *found = is_named(marker, name) ? find(marker, connection) : 0;
		if (found)
			failed = replace(marker, 0, found);
	}
	return failed;
}

int nopal_connect(const char *name, const char *format, nopal_probe *probe, void *data)
{
	struct connection connection = { probe, data };
	struct marker *marker;
	int failed = -ENOENT;
	mutex_lock(&nopal_lock);
	list_for_each_entry(marker, &markers, list) {
		if (!is_named(marker, name))
			continue;
		failed = format && strcmp(format, marker->description.format) ? -EINVAL :
			 find(marker, &connection)			     ? -EEXIST :
									       0;
		if (failed)
			goto end;
	}
	if (failed)
		goto end;
	list_for_each_entry(marker, &markers, list) {
		failed = is_named(marker, name) ? replace(marker, &connection, 0) : 0;
		if (failed) {
			disconnect(name, &connection);
			break;
		}
	}
end:
	mutex_unlock(&nopal_lock);
	return failed;
}
EXPORT_SYMBOL_GPL(nopal_connect);

int nopal_disconnect(const char *name, nopal_probe *probe, void *data)
{
	struct connection connection = { probe, data };
	mutex_lock(&nopal_lock);
	int failed = disconnect(name, &connection);
	mutex_unlock(&nopal_lock);
	return failed;
}
EXPORT_SYMBOL_GPL(nopal_disconnect);

/* ---- modules that come and go ---- */

/* For modules that forget to disconnect. */
static void disconnect_all_of(struct marker *marker, const struct module *module)
{
	const struct connections *all = held(marker);
	for (uint32_t i = all ? all->count : 0; i-- > 0; all = held(marker))
		if (within_module((unsigned long)all->each[i].probe, module))
			replace(marker, 0, &all->each[i]);
}

/* The module's code does not run any more, and is unloaded when the notifier has returned. */
static void forget_all_of(const struct module *module)
{
	struct marker *marker;
	list_for_each_entry(marker, &markers, list) {
		if (marker->module == module) {
			marker->place = 0;
			marker->module = 0;
			marker->on = false;
		}
		disconnect_all_of(marker, module);
	}
}

static int at_module(struct notifier_block *block, unsigned long event, void *data)
{
	mutex_lock(&nopal_lock);
	if (event == MODULE_STATE_COMING)
		learn_all_of(data);
	else if (event == MODULE_STATE_GOING)
		forget_all_of(data);
	mutex_unlock(&nopal_lock);
	return NOTIFY_DONE;
}

/* Runs after the notifier of jump labels when a module is loaded. */
static struct notifier_block notifier = { .notifier_call = at_module };

/* ---- what the tool asks ---- */

static uint32_t put(char *to, uint32_t at, const char *text)
{
	uint32_t bytes = strlen(text) + 1;
	if (to)
		memcpy(to + at, text, bytes);
	return at + bytes;
}

/* Writes a marker to `to` if that is not 0; returns its length. */
static uint32_t tell(const struct marker *marker, char *to)
{
	uint32_t at = sizeof(struct nopal_device_marker);
	at = put(to, at, marker->module_name);
	at = put(to, at, marker->description.name);
	at = put(to, at, marker->description.format);
	at = put(to, at, marker->description.file);
	at = ALIGN(at, 8);
	struct nopal_device_marker head = {
		.bytes = at,
		.event = marker->mark.event,
		.types = { marker->types[0], marker->types[1] },
		.line = marker->description.line,
		.is_there = marker->place != 0,
	};
	if (to)
		memcpy(to, &head, sizeof head);
	return at;
}

int nopal_markers_tell(struct nopal_device_markers *wanted)
{
	const struct marker *marker;
	wanted->bytes = 0;
	list_for_each_entry(marker, &markers, list)
		wanted->bytes += tell(marker, 0);
	if (wanted->bytes > wanted->room)
		return 0;
	char *buffer = kvzalloc(wanted->bytes + 1, GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	uint32_t at = 0;
	list_for_each_entry(marker, &markers, list)
		at += tell(marker, buffer + at);
	int failed = copy_to_user((void __user *)wanted->markers, buffer, at) ? -EFAULT : 0;
	kvfree(buffer);
	return failed;
}

/* ---- begin and end ---- */

int nopal_markers_begin(void)
{
	int failed = register_module_notifier(&notifier);
	if (failed)
		return failed;
	mutex_lock(&nopal_lock);
	mutex_lock(nopal_symbols.module_mutex);
	struct module *module;
	list_for_each_entry(module, nopal_symbols.modules, list)
		if (module->state == MODULE_STATE_LIVE || module->state == MODULE_STATE_COMING)
			learn_all_of(module);
	mutex_unlock(nopal_symbols.module_mutex);
	mutex_unlock(&nopal_lock);
	return 0;
}

/* No functions are connected: modules that have connected some keep this one loaded. */
void nopal_markers_end(void)
{
	struct marker *marker, *next;
	unregister_module_notifier(&notifier);
	mutex_lock(&nopal_lock);
	traced = 0;
	nopal_markers_reset();
	mutex_unlock(&nopal_lock);
	nopal_wait_for_tasks();
	list_for_each_entry_safe(marker, next, &markers, list)
		drop(marker);
	INIT_LIST_HEAD(&markers);
}
