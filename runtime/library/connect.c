/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Connecting and disconnecting, in this order: the code and data that a marker leads to are complete before it is
 * switched on, and they are freed only when no thread can use them any more.
 */
#define _GNU_SOURCE
#include "library.h"

#include <cpuid.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Written under library_lock before the first marker leads to a probe, and constant afterwards. */
uint32_t library_vector_state;

/* Never taken in a marker or a hooked function. */
pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t change_lock = PTHREAD_MUTEX_INITIALIZER;
/* Whether the thread has the lock: a marker in the allocator may have a probe that loads a library. */
static _Thread_local bool is_changing __attribute__((tls_model("initial-exec")));
/* A library was loaded by the thread that has the lock, which could not look into it then. */
static bool has_missed;

/* A connection that is wanted in every loaded file. */
struct wanted {
	struct wanted *next;
	char *name;             /* of the marker */
	char *library;          /* a glob of file names; 0: any */
	char *format;           /* 0: any */
	struct connection connection;
};

/* Changed under library_lock and change_lock; read with one of them. */
static struct wanted *all_wanted;
/* Connections that are freed when no probe uses them any more. Under change_lock. */
static struct connections *retired;
/* The error of the calling thread's last call. */
static _Thread_local char why[256];

const char *nopal_error(void)
{
	return why;
}

int library_failed(int error, const char *text, ...)
{
	va_list values;
	va_start(values, text);
	vsnprintf(why, sizeof why, text, values);
	va_end(values);
	return error;
}

#define X87_AND_SSE 0x3         /* of XCR0 */
#define AVX_AND_AVX_512 0xe4
#define MASKS 0x20

static void learn_vector_state(void)
{
	unsigned eax, ebx, ecx, edx;
	library_vector_state = X87_AND_SSE;
	if (!__get_cpuid_count(1, 0, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
		return;
	unsigned low, high;
	__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	library_vector_state |= low & AVX_AND_AVX_512;
	if (__get_cpuid_count(13, 1, &eax, &ebx, &ecx, &edx) && eax & 4)
		library_vector_state |= LIBRARY_TELLS_USE;
}

/* dispatch.S saves mask registers of 64 bits, which the first processors with AVX-512 lack. */
static bool can_be_saved(void)
{
	unsigned eax, ebx, ecx, edx;
	return !(library_vector_state & MASKS) ||
	       (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && ebx & bit_AVX512BW);
}

int connection_prepare(const struct connection *connection)
{
	if (!library_vector_state)
		learn_vector_state();
	if (connection->general || can_be_saved())
		return 0;
	return library_failed(-ENOTSUP, "this processor's mask registers cannot be saved around a function; a NOPAL_PROBE can "
					"be connected");
}

#define NESTED_AT_MOST 8
/* Incremented atomically by any thread in a marker. */
static uint64_t cut_off;

uint64_t nopal_cut_off(void)
{
	return __atomic_load_n(&cut_off, __ATOMIC_RELAXED) +
	       __atomic_load_n(&library_hooks_cut_off, __ATOMIC_RELAXED);
}

bool probe_begin(unsigned *token)
{
	if (grace_depth() == NESTED_AT_MOST) {
		__atomic_add_fetch(&cut_off, 1, __ATOMIC_RELAXED);
		return false;
	}
	*token = grace_begin();
	return true;
}

void library_dispatch(const struct nopal_marker *marker, const uint64_t *values)
{
	unsigned token;
	if (!probe_begin(&token))
		return;
	const struct connected *connected = marker->probes;
	const struct connections *connections = __atomic_load_n(&connected->connections, __ATOMIC_ACQUIRE);
	for (size_t i = 0; connections && i < connections->count; i++) {
		const struct connection *connection = &connections->all[i];
		if (connection->general)
			connection->probe(connection->data, &connected->description, values);
		else
			library_call_ordinary(connection->data, &connected->description, values, connection->probe);
	}
	grace_end(token);
}

struct connections *connections_changed(const struct connections *old, size_t leave, const struct connection *join)
{
	size_t count = old ? old->count : 0;
	struct connections *new = malloc(sizeof *new + (count + 1) * sizeof new->all[0]);
	if (!new)
		return 0;
	new->count = 0;
	for (size_t i = 0; i < count; i++)
		if (i != leave)
			new->all[new->count++] = old->all[i];
	if (join)
		new->all[new->count++] = *join;
	return new;
}

size_t connections_find(const struct connections *connections, const struct connection *connection)
{
	size_t i = 0;
	while (connections && i < connections->count &&
	       (connections->all[i].probe != connection->probe || connections->all[i].data != connection->data))
		i++;
	return connections && i < connections->count ? i : SIZE_MAX;
}

void connections_replace(struct connections **connections, struct connections *new)
{
	struct connections *old = *connections;
	__atomic_store_n(connections, new, __ATOMIC_SEQ_CST);
	if (old) {
		old->next = retired;
		retired = old;
	}
}

static int join(struct found_marker *found, const struct connection *connection)
{
	struct nopal_marker *marker = found->marker;
	struct connected *connected = marker->probes;
	if (!connected) {
		connected = calloc(1, sizeof *connected);
		if (!connected)
			return -ENOMEM;
		connected->description = found->description;
		__atomic_store_n(&marker->probes, connected, __ATOMIC_RELEASE);
	}
	struct connections *new = connections_changed(connected->connections, SIZE_MAX, connection);
	if (!new)
		return -ENOMEM;
	connections_replace(&connected->connections, new);
	__atomic_store_n(&marker->call, library_called, __ATOMIC_RELEASE);
	return 0;
}

static bool leave(struct nopal_marker *marker, const struct connection *connection)
{
	struct connected *connected = marker->probes;
	size_t place = connected ? connections_find(connected->connections, connection) : SIZE_MAX;
	if (place == SIZE_MAX)
		return false;
	struct connections *new = connections_changed(connected->connections, place, 0);
	if (new)
		connections_replace(&connected->connections, new);
	return new;
}

static const struct connections *connections_of(const struct nopal_marker *marker)
{
	const struct connected *connected = marker->probes;
	return connected ? connected->connections : 0;
}

static bool is_connected(const struct found_marker *found, const struct connection *connection)
{
	return connections_find(connections_of(found->marker), connection) != SIZE_MAX;
}

/* ---- what is wanted ---- */

static bool same(const char *one, const char *other)
{
	return one && other ? !strcmp(one, other) : one == other;
}

/* The link to the wanted connection of this name; to 0 if there is none. */
static struct wanted **link_to(const struct wanted *like)
{
	struct wanted **link = &all_wanted;
	while (*link && !(same((*link)->name, like->name) && same((*link)->library, like->library) &&
			  (*link)->connection.probe == like->connection.probe &&
			  (*link)->connection.data == like->connection.data))
		link = &(*link)->next;
	return link;
}

static void wanted_free(struct wanted *wanted)
{
	if (!wanted)
		return;
	free(wanted->name);
	free(wanted->library);
	free(wanted->format);
	free(wanted);
}

/* `NAME` or `NAME@LIBRARY`. 0: no memory. */
static struct wanted *wanted_new(const char *name, const char *format, const struct connection *connection)
{
	struct wanted *wanted = calloc(1, sizeof *wanted);
	if (!wanted)
		return 0;
	const char *at = strrchr(name, '@');
	wanted->connection = *connection;
	wanted->name = at ? strndup(name, (size_t)(at - name)) : strdup(name);
	wanted->library = at ? strdup(at + 1) : 0;
	wanted->format = format ? strdup(format) : 0;
	if (wanted->name && (!at || wanted->library) && (!format || wanted->format))
		return wanted;
	wanted_free(wanted);
	return 0;
}

/* Makes the wanted connections to markers that were loaded since. Those with another format stay as they are. */
static void settle(void *unused)
{
	(void)unused;
	for (struct wanted *wanted = all_wanted; wanted; wanted = wanted->next) {
		struct found found;
		bool joined = false;
		found_markers(wanted->name, wanted->library, &found);
		for (size_t i = 0; i < found.marker_count; i++) {
			struct found_marker *marker = &found.markers[i];
			bool fits = !wanted->format || !strcmp(wanted->format, marker->description.format);
			if (fits && !is_connected(marker, &wanted->connection))
				joined |= !join(marker, &wanted->connection);
		}
		if (joined)
			text_switch(&found, true);
		found_free(&found);
	}
}

void change_begin(void)
{
	pthread_mutex_lock(&change_lock);
	is_changing = true;
}

void change_end(void)
{
	while (has_missed) {
		has_missed = false;
		while_loaded(settle, 0);
	}
	is_changing = false;
	pthread_mutex_unlock(&change_lock);
}

/* Called by a file with markers before its own code runs, with the loader's lock. Waits for no thread that waits for
 * probes. */
__attribute__((visibility("default"))) void nopal_loaded(void)
{
	if (is_changing) {
		has_missed = true;
		return;
	}
	change_begin();
	while_loaded(settle, 0);
	change_end();
}

void connections_free_retired(void)
{
	pthread_mutex_lock(&change_lock);
	struct connections *old = retired;
	retired = 0;
	pthread_mutex_unlock(&change_lock);
	if (old)
		grace_wait();
	while (old) {
		struct connections *next = old->next;
		free(old);
		old = next;
	}
}

/* ---- connecting ---- */

static int check(const struct found *found, const char *name, const struct wanted *wanted)
{
	bool may_come = wanted->library && !found->library_is_loaded;
	if (found->out_of_memory)
		return library_failed(-ENOMEM, "no memory");
	if (*link_to(wanted))
		return library_failed(-EEXIST, "the probe is connected to \"%s\" already", name);
	if (!*name)
		return library_failed(-ENOENT, "no marker \"\": expected the name of one");
	if (!found->marker_count && !may_come && found->nearest.name[0])
		return library_failed(-ENOENT, "no marker \"%s\"; the nearest is %s", name, found->nearest.name);
	if (!found->marker_count && !may_come)
		return library_failed(-ENOENT, "no marker \"%s\"", name);
	for (size_t i = 0; i < found->marker_count; i++) {
		const struct nopal_description *description = &found->markers[i].description;
		if (wanted->format && strcmp(wanted->format, description->format))
			return library_failed(-EINVAL, "marker \"%s\" at %s:%u has the format \"%s\", not \"%s\"", name,
				      description->file, description->line, description->format, wanted->format);
		if (is_connected(&found->markers[i], &wanted->connection))
			return library_failed(-EEXIST, "the probe is connected to \"%s\" already", name);
	}
	return 0;
}

struct change {
	const char *name;
	struct wanted *wanted;
	int error;
	bool is_text;           /* the error is of changing text */
	bool left;
};

static void connect_wanted(void *data)
{
	struct change *change = data;
	struct wanted *wanted = change->wanted;
	struct found found;
	found_markers(wanted->name, wanted->library, &found);
	int error = check(&found, change->name, wanted);
	error = error ? error : connection_prepare(&wanted->connection);
	size_t joined = 0;
	while (!error && joined < found.marker_count) {
		error = join(&found.markers[joined], &wanted->connection);
		if (error)
			library_failed(error, "no memory");
		joined += !error;
	}
	if (!error) {
		error = text_switch(&found, true);
		change->is_text = error;
	}
	while (error && joined > 0)
		leave(found.markers[--joined].marker, &wanted->connection);
	found_free(&found);
	if (!error) {
		wanted->next = all_wanted;
		all_wanted = wanted;
	}
	change->error = error;
}

int nopal_connect(const char *name, const char *format, nopal_probe *probe, void *data)
{
	if (grace_depth())
		return library_failed(-EDEADLK, "a probe cannot connect");
	const struct connection connection = { probe, data, is_general(probe) };
	struct wanted *wanted = wanted_new(name, format, &connection);
	if (!wanted)
		return library_failed(-ENOMEM, "no memory");
	struct change change = { .name = name, .wanted = wanted };
	pthread_mutex_lock(&library_lock);
	change_begin();
	while_loaded(connect_wanted, &change);
	change_end();
	connections_free_retired();
	pthread_mutex_unlock(&library_lock);
	if (change.error)
		wanted_free(wanted);
	/* The error's text may be in a library that is loaded for it. */
	return change.is_text ? library_failed(change.error, "the text around \"%s\" cannot be changed: %s", name,
					       strerror(-change.error))
			      : change.error;
}

static void disconnect_wanted(void *data)
{
	struct change *change = data;
	const struct wanted *wanted = change->wanted;
	struct wanted **link = link_to(wanted), *known = *link;
	if (known)
		*link = known->next;
	struct found found;
	found_markers(wanted->name, wanted->library, &found);
	bool left = false, others = false;
	for (size_t i = 0; i < found.marker_count; i++) {
		left |= leave(found.markers[i].marker, &wanted->connection);
		const struct connections *connections = connections_of(found.markers[i].marker);
		others |= connections && connections->count;
	}
	if (left && !others)
		text_switch(&found, false);
	found_free(&found);
	change->left = left || known;
	wanted_free(known);
}

int nopal_disconnect(const char *name, nopal_probe *probe, void *data)
{
	if (grace_depth())
		return library_failed(-EDEADLK, "a probe cannot wait until it has ended");
	const struct connection connection = { .probe = probe, .data = data };
	struct wanted *wanted = wanted_new(name, 0, &connection);
	if (!wanted)
		return library_failed(-ENOMEM, "no memory");
	struct change change = { .wanted = wanted };
	pthread_mutex_lock(&library_lock);
	change_begin();
	while_loaded(disconnect_wanted, &change);
	change_end();
	connections_free_retired();
	pthread_mutex_unlock(&library_lock);
	wanted_free(wanted);
	return change.left ? 0 : library_failed(-ENOENT, "the probe is not connected to \"%s\"", name);
}

/* ---- listing ---- */

static bool is_place_of(const struct found_place *place, const struct found_marker *marker)
{
	const struct nopal_description *description = &marker->description;
	return place->line == description->line && !strcmp(place->name, description->name) &&
	       !strcmp(place->file, description->file);
}

static bool is_on(const struct found *found, const struct found_marker *marker)
{
	for (size_t i = 0; i < found->place_count; i++)
		if (is_place_of(&found->places[i], marker) && text_is_on(&found->places[i]))
			return true;
	return false;
}

/* A copy, to be shown without a lock. */
struct list {
	struct nopal_listed_marker *all;
	size_t count;
	bool out_of_memory;
};

static void list_add(struct list *list, const struct nopal_listed_marker *marker, const struct connection *connections)
{
	struct nopal_connected_probe *probes = calloc(marker->count + 1, sizeof *probes);
	struct nopal_listed_marker *larger = realloc(list->all, (list->count + 1) * sizeof *larger);
	list->all = larger ? larger : list->all;
	list->out_of_memory |= !probes || !larger;
	if (!probes || !larger) {
		free(probes);
		return;
	}
	for (size_t i = 0; i < marker->count; i++)
		probes[i] = (struct nopal_connected_probe){ connections[i].probe, connections[i].data };
	larger[list->count] = *marker;
	larger[list->count++].probes = probes;
}

static void list_markers(void *data)
{
	struct list *list = data;
	struct found found;
	found_markers(0, 0, &found);
	for (size_t i = 0; i < found.marker_count; i++) {
		const struct found_marker *marker = &found.markers[i];
		const void *record = (const void *)__atomic_load_n(&marker->marker->record, __ATOMIC_RELAXED);
		const struct connections *connections = connections_of(marker->marker);
		const struct nopal_listed_marker listed = {
			.marker = marker->description,
			.library = marker->library,
			.on = is_on(&found, marker),
			.recorded = record && record != marker->idle,
			.count = connections ? connections->count : 0,
		};
		list_add(list, &listed, connections ? connections->all : 0);
	}
	list->out_of_memory |= found.out_of_memory;
	found_free(&found);
}

static void list_waiting(struct list *list)
{
	for (const struct wanted *wanted = all_wanted; wanted; wanted = wanted->next) {
		struct found found;
		found_markers(wanted->name, wanted->library, &found);
		bool waits = !found.marker_count;
		found_free(&found);
		if (!waits)
			continue;
		const struct nopal_listed_marker listed = {
			.marker = { .name = strdup(wanted->name), .format = wanted->format ? strdup(wanted->format) : 0 },
			.library = wanted->library ? strdup(wanted->library) : 0,
			.waits = 1,
			.count = 1,
		};
		list->out_of_memory |= !listed.marker.name || (wanted->library && !listed.library);
		list_add(list, &listed, &wanted->connection);
	}
}

int nopal_each_marker(nopal_marker_visitor *visitor, void *data)
{
	if (grace_depth())
		return library_failed(-EDEADLK, "a probe cannot list markers");
	struct list list = { 0 };
	pthread_mutex_lock(&library_lock);
	while_loaded(list_markers, &list);
	list_waiting(&list);
	pthread_mutex_unlock(&library_lock);
	for (size_t i = 0; !list.out_of_memory && i < list.count; i++)
		visitor(data, &list.all[i]);
	for (size_t i = 0; i < list.count; i++) {
		const struct nopal_listed_marker *listed = &list.all[i];
		free((void *)listed->probes);
		if (listed->waits) {
			free((void *)listed->marker.name);
			free((void *)listed->marker.format);
			free((void *)listed->library);
		}
	}
	free(list.all);
	return list.out_of_memory ? library_failed(-ENOMEM, "no memory") : 0;
}
