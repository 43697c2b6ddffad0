/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Finds the notes that nopal.h has written, in the memory of all loaded files. They are the program's own, so the data
 * that they point to is trusted; bounds of the notes themselves are checked.
 */
#define _GNU_SOURCE
#include "library.h"

#include <elf.h>
#include <fnmatch.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

typedef void visitor(uint32_t type, const void *content, uint64_t bytes, void *data);

struct visit {
	visitor *visitor;
	void *data;
	const char *library;    /* a glob; 0: any file */
	bool is_loaded;         /* such a library */
	const char *file;       /* that is looked into */
};

struct search {
	const char *name;       /* 0: any */
	struct found *found;
	const struct visit *visit;
};

static const void *target(const int32_t *field)
{
	return (const char *)field + *field;
}

static void *grown(void *array, size_t count, size_t size, struct found *found)
{
	if (count & (count - 1))
		return array;
	void *larger = realloc(array, (count ? count * 2 : 1) * size);
	found->out_of_memory |= !larger;
	return larger;
}

static void add_marker(const struct nopal_marker_note *note, struct search *search)
{
	struct found *found = search->found;
	const char *name = target(&note->name);
	if (search->name && strcmp(name, search->name)) {
		nearest_look(&found->nearest, search->name, name);
		return;
	}
	void *larger = grown(found->markers, found->marker_count, sizeof *found->markers, found);
	if (!larger)
		return;
	found->markers = larger;
	found->markers[found->marker_count++] = (struct found_marker){
		.marker = (struct nopal_marker *)target(&note->marker),
		.idle = target(&note->idle),
		.library = search->visit->file,
		.description = { name, target(&note->format), target(&note->file), note->line },
	};
}

static void add_place(const struct nopal_place_note *note, struct search *search)
{
	struct found *found = search->found;
	if (search->name && strcmp(target(&note->name), search->name))
		return;
	void *larger = grown(found->places, found->place_count, sizeof *found->places, found);
	if (!larger)
		return;
	found->places = larger;
	found->places[found->place_count++] = (struct found_place){
		.place = (uint64_t)target(&note->place),
		.on = (uint64_t)target(&note->on),
		.kind = note->kind,
		.name = target(&note->name),
		.file = target(&note->file),
		.line = note->line,
	};
}

static void look_into(const char *notes, uint64_t bytes, const struct visit *visit)
{
	while (bytes >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)notes;
		uint64_t name_bytes = ((uint64_t)note->n_namesz + 3) & ~3ull;
		uint64_t whole = sizeof *note + name_bytes + (((uint64_t)note->n_descsz + 3) & ~3ull);
		if (whole > bytes)
			return;
		const char *owner = (const char *)(note + 1), *content = owner + name_bytes;
		if (note->n_namesz == 6 && !memcmp(owner, "nopal", 6))
			visit->visitor(note->n_type, content, note->n_descsz, visit->data);
		notes += whole;
		bytes -= whole;
	}
}

static int look_into_object(struct dl_phdr_info *object, size_t size, void *data)
{
	(void)size;
	struct visit *visit = data;
	const char *slash = strrchr(object->dlpi_name, '/');
	visit->file = slash ? slash + 1 : object->dlpi_name;
	if (visit->library && fnmatch(visit->library, visit->file, 0))
		return 0;
	visit->is_loaded = true;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &object->dlpi_phdr[i];
		/* Some linkers put all notes into one segment, which is aligned as the strictest of them. */
		if (header->p_type == PT_NOTE)
			look_into((const char *)object->dlpi_addr + header->p_vaddr, header->p_memsz, visit);
	}
	return 0;
}

static void for_each_note(struct visit *visit)
{
	dl_iterate_phdr(look_into_object, visit);
}

static void add(uint32_t type, const void *content, uint64_t bytes, void *data)
{
	struct search *search = data;
	if (search->found->out_of_memory)
		return;
	if (type == NOPAL_NOTE_MARKER && bytes >= sizeof(struct nopal_marker_note))
		add_marker(content, search);
	if (type == NOPAL_NOTE_PLACE && bytes >= sizeof(struct nopal_place_note))
		add_place(content, search);
}

void found_markers(const char *name, const char *library, struct found *found)
{
	*found = (struct found){ 0 };
	struct visit visit = { .visitor = add, .library = library };
	struct search search = { name, found, &visit };
	visit.data = &search;
	for_each_note(&visit);
	found->library_is_loaded = visit.is_loaded;
}

struct work {
	void (*function)(void *data);
	void *data;
};

static int work_once(struct dl_phdr_info *object, size_t size, void *data)
{
	(void)object;
	(void)size;
	const struct work *work = data;
	work->function(work->data);
	return 1;
}

void while_loaded(void (*function)(void *data), void *data)
{
	struct work work = { function, data };
	dl_iterate_phdr(work_once, &work);
}

struct general_search {
	const void *function;
	bool found;
};

static void compare_probe(uint32_t type, const void *content, uint64_t bytes, void *data)
{
	struct general_search *search = data;
	const struct nopal_probe_note *note = content;
	if (type == NOPAL_NOTE_PROBE && bytes >= sizeof *note && target(&note->function) == search->function)
		search->found = true;
}

bool is_general(nopal_probe *probe)
{
	struct general_search search = { (const void *)probe, false };
	struct visit visit = { .visitor = compare_probe, .data = &search };
	for_each_note(&visit);
	return search.found;
}

void found_free(struct found *found)
{
	free(found->markers);
	free(found->places);
}
