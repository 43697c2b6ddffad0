/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Connecting and disconnecting, in this order: what a marker leads to is complete before it is switched on, and what it
 * led to is freed only when nobody can be in it any more.
 */
#include "library.h"

#include <cpuid.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Written under `library_lock` before the first marker leads to a probe, and constant afterwards. */
uint32_t library_vector_state;

/* Held while connecting and disconnecting; never taken in a marker or a hooked function. */
pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
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

#define NESTED_AT_MOST 8
/* Incremented atomically by any thread in a marker. */
static uint64_t cut_off;

uint64_t nopal_cut_off(void)
{
	return __atomic_load_n(&cut_off, __ATOMIC_RELAXED) +
	       __atomic_load_n(&library_hooks_cut_off, __ATOMIC_RELAXED);
}

void library_dispatch(const struct nopal_marker *marker, const uint64_t *values)
{
	if (grace_depth() == NESTED_AT_MOST) {
		__atomic_add_fetch(&cut_off, 1, __ATOMIC_RELAXED);
		return;
	}
	unsigned token = grace_begin();
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

/* A copy without the connection at `leave`, if valid, and with `join`, if given. */
static struct connections *changed(const struct connections *old, size_t leave, const struct connection *join)
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

static size_t place_in(const struct connections *connections, const struct connection *connection)
{
	size_t i = 0;
	while (connections && i < connections->count &&
	       (connections->all[i].probe != connection->probe || connections->all[i].data != connection->data))
		i++;
	return connections && i < connections->count ? i : SIZE_MAX;
}

/* Publishes `new`, waits for threads that may still use the old one, and frees it. */
static void replace(struct connected *connected, struct connections *new)
{
	struct connections *old = connected->connections;
	__atomic_store_n(&connected->connections, new, __ATOMIC_SEQ_CST);
	grace_wait();
	free(old);
}

static int join(struct found_marker *found, const struct connection *connection)
{
	struct nopal_marker *marker = found->marker;
	struct connected *connected = marker->probes;
	if (!connected) {
		connected = calloc(1, sizeof *connected);
		if (!connected)
			return library_failed(-ENOMEM, "no memory");
		connected->description = found->description;
		__atomic_store_n(&marker->probes, connected, __ATOMIC_RELEASE);
	}
	struct connections *new = changed(connected->connections, SIZE_MAX, connection);
	if (!new)
		return library_failed(-ENOMEM, "no memory");
	replace(connected, new);
	__atomic_store_n(&marker->call, library_called, __ATOMIC_RELEASE);
	return 0;
}

static bool leave(struct nopal_marker *marker, const struct connection *connection)
{
	struct connected *connected = marker->probes;
	size_t place = connected ? place_in(connected->connections, connection) : SIZE_MAX;
	if (place == SIZE_MAX)
		return false;
	struct connections *new = changed(connected->connections, place, 0);
	if (new)
		replace(connected, new);
	return new;
}

static bool is_connected(const struct found_marker *found)
{
	const struct connected *connected = found->marker->probes;
	return connected && connected->connections && connected->connections->count;
}

static int check(const struct found *found, const char *name, const char *format, const struct connection *connection)
{
	if (found->out_of_memory)
		return library_failed(-ENOMEM, "no memory");
	if (!found->marker_count && found->nearest.name[0])
		return library_failed(-ENOENT, "no marker %s; the nearest is %s", name, found->nearest.name);
	if (!found->marker_count)
		return library_failed(-ENOENT, "no marker %s", name);
	for (size_t i = 0; i < found->marker_count; i++) {
		const struct nopal_description *description = &found->markers[i].description;
		if (format && strcmp(format, description->format))
			return library_failed(-EINVAL, "marker %s at %s:%u has the format \"%s\", not \"%s\"", name,
				      description->file, description->line, description->format, format);
		const struct connected *connected = found->markers[i].marker->probes;
		if (connected && place_in(connected->connections, connection) != SIZE_MAX)
			return library_failed(-EEXIST, "the probe is connected to %s already", name);
	}
	return 0;
}

int nopal_connect(const char *name, const char *format, nopal_probe *probe, void *data)
{
	if (grace_depth())
		return library_failed(-EDEADLK, "a probe cannot connect");
	const struct connection connection = { probe, data, is_general(probe) };
	struct found found;
	pthread_mutex_lock(&library_lock);
	if (!library_vector_state)
		learn_vector_state();
	found_markers(name, &found);
	int error = check(&found, name, format, &connection);
	if (!error && !connection.general && !can_be_saved())
		error = library_failed(-ENOTSUP, "this processor's mask registers cannot be saved around a function; "
						 "a NOPAL_PROBE can be connected");
	size_t joined = 0;
	while (!error && joined < found.marker_count) {
		error = join(&found.markers[joined], &connection);
		joined += !error;
	}
	if (!error) {
		error = text_switch(&found, true);
		if (error)
			library_failed(error, "the text around %s cannot be changed: %s", name, strerror(-error));
	}
	while (error && joined > 0)
		leave(found.markers[--joined].marker, &connection);
	found_free(&found);
	pthread_mutex_unlock(&library_lock);
	return error;
}

int nopal_disconnect(const char *name, nopal_probe *probe, void *data)
{
	if (grace_depth())
		return library_failed(-EDEADLK, "a probe cannot wait until it has ended");
	const struct connection connection = { .probe = probe, .data = data };
	struct found found;
	pthread_mutex_lock(&library_lock);
	found_markers(name, &found);
	bool left = false, others = false;
	for (size_t i = 0; i < found.marker_count; i++) {
		left |= leave(found.markers[i].marker, &connection);
		others |= is_connected(&found.markers[i]);
	}
	int error = left ? 0 : library_failed(-ENOENT, "the probe is not connected to %s", name);
	if (left && !others)
		text_switch(&found, false);
	found_free(&found);
	pthread_mutex_unlock(&library_lock);
	return error;
}
