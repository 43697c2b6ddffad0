/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Finds functions that were compiled with room at their entries, in all loaded files: the compiler has left lists of
 * the places, and files have the names. Files are checked as they are read; the lists are the program's own.
 */
#define _GNU_SOURCE
#include "library.h"

#include <elf.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENDBR_BYTES 4
/* Room before a function's first byte, at most: -fpatchable-function-entry=N,M. */
#define BEFORE_AT_MOST 256

struct symbol {
	uint64_t address;
	uint64_t size;
	const char *name;
};

struct file {
	const uint8_t *bytes;
	size_t size;
	const Elf64_Ehdr *header;
	const Elf64_Shdr *sections;
	const struct dl_phdr_info *object;
	struct symbol *symbols;
	size_t symbol_count;
};

struct search {
	const char *pattern;
	struct functions *found;
};

static bool lies_in(const struct file *file, uint64_t offset, uint64_t bytes)
{
	return offset <= file->size && bytes <= file->size - offset;
}

/* The file is the one that was loaded: its program headers are those in memory. */
static bool check(struct file *file)
{
	const Elf64_Ehdr *header = file->header = (const Elf64_Ehdr *)file->bytes;
	uint64_t phdr_bytes = (uint64_t)file->object->dlpi_phnum * sizeof(Elf64_Phdr);
	return file->size >= sizeof *header && !memcmp(header->e_ident, ELFMAG, SELFMAG) &&
	       header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_phnum == file->object->dlpi_phnum &&
	       header->e_shentsize == sizeof(Elf64_Shdr) && lies_in(file, header->e_phoff, phdr_bytes) &&
	       !memcmp(file->bytes + header->e_phoff, file->object->dlpi_phdr, phdr_bytes) &&
	       header->e_shoff % 8 == 0 &&
	       lies_in(file, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr)) &&
	       header->e_shstrndx < header->e_shnum;
}

static bool open_file(const struct dl_phdr_info *object, struct file *file)
{
	*file = (struct file){ .object = object };
	int number = open(object->dlpi_name[0] ? object->dlpi_name : "/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct stat status;
	if (number < 0)
		return false;
	if (!fstat(number, &status) && status.st_size > 0) {
		void *bytes = mmap(0, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, number, 0);
		if (bytes != MAP_FAILED)
			*file = (struct file){ .bytes = bytes, .size = (size_t)status.st_size, .object = object };
	}
	close(number);
	if (!file->bytes || !check(file))
		return false;
	file->sections = (const Elf64_Shdr *)(file->bytes + file->header->e_shoff);
	return true;
}

static void close_file(struct file *file)
{
	if (file->bytes)
		munmap((void *)file->bytes, file->size);
	free(file->symbols);
}

/* A string of a string table; 0 if it does not end within the table. */
static const char *text_at(const struct file *file, const Elf64_Shdr *table, uint64_t offset)
{
	if (!lies_in(file, table->sh_offset, table->sh_size) || offset >= table->sh_size)
		return 0;
	const char *text = (const char *)file->bytes + table->sh_offset + offset;
	return memchr(text, 0, table->sh_size - offset) ? text : 0;
}

static bool is_named(const struct file *file, const Elf64_Shdr *section, const char *name)
{
	const char *found = text_at(file, &file->sections[file->header->e_shstrndx], section->sh_name);
	return found && !strcmp(found, name);
}

static bool lists_places(const struct file *file, const Elf64_Shdr *section)
{
	return section->sh_flags & SHF_ALLOC && section->sh_type != SHT_NOBITS &&
	       (is_named(file, section, "__patchable_function_entries") || is_named(file, section, "__mcount_loc"));
}

/* Whether `bytes` at an address of the process are loaded from the object, with these rights at least. */
static bool is_loaded(const struct dl_phdr_info *object, uint64_t address, uint64_t bytes, uint32_t rights)
{
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const Elf64_Phdr *part = &object->dlpi_phdr[i];
		uint64_t inside = address - (object->dlpi_addr + part->p_vaddr);
		if (part->p_type == PT_LOAD && (part->p_flags & rights) == rights && inside < part->p_memsz &&
		    bytes <= part->p_memsz - inside)
			return true;
	}
	return false;
}

static int by_address(const void *a, const void *b)
{
	const struct symbol *one = a, *other = b;
	return one->address < other->address ? -1 : one->address > other->address;
}

static void read_symbols(struct file *file, const Elf64_Shdr *section)
{
	if (section->sh_link >= file->header->e_shnum || section->sh_offset % 8 ||
	    !lies_in(file, section->sh_offset, section->sh_size))
		return;
	const Elf64_Shdr *names = &file->sections[section->sh_link];
	const Elf64_Sym *symbols = (const Elf64_Sym *)(file->bytes + section->sh_offset);
	size_t count = section->sh_size / sizeof *symbols;
	free(file->symbols);
	file->symbol_count = 0;
	file->symbols = calloc(count + 1, sizeof *file->symbols);
	for (size_t i = 0; file->symbols && i < count; i++) {
		const char *name = text_at(file, names, symbols[i].st_name);
		if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_shndx != SHN_UNDEF && name)
			file->symbols[file->symbol_count++] =
				(struct symbol){ file->object->dlpi_addr + symbols[i].st_value, symbols[i].st_size, name };
	}
	qsort(file->symbols, file->symbol_count, sizeof *file->symbols, by_address);
}

/* The full symbol table, if there is one. */
static void find_symbols(struct file *file)
{
	for (uint32_t type = SHT_DYNSYM; type; type = type == SHT_DYNSYM ? SHT_SYMTAB : 0)
		for (unsigned i = 0; i < file->header->e_shnum; i++)
			if (file->sections[i].sh_type == type)
				read_symbols(file, &file->sections[i]);
}

/* The number of symbols at or below an address. */
static size_t symbols_to(const struct file *file, uint64_t address)
{
	size_t low = 0, high = file->symbol_count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (file->symbols[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static uint64_t behind_endbr(const struct dl_phdr_info *object, uint64_t function)
{
	static const uint8_t endbr[ENDBR_BYTES] = { 0xf3, 0x0f, 0x1e, 0xfa };
	bool has = is_loaded(object, function, ENDBR_BYTES, PF_X) && !memcmp((const void *)function, endbr, ENDBR_BYTES);
	return function + (has ? ENDBR_BYTES : 0);
}

/* Finds the place that runs at the function's entry, and the first of its symbols. A list gives the begin of the NOPs,
 * which may be before the function. */
static uint64_t place_of(const struct file *file, uint64_t listed, size_t *symbol)
{
	size_t next = symbols_to(file, listed);
	*symbol = next;
	if (next) {
		uint64_t function = file->symbols[next - 1].address;
		if (listed == function || listed == behind_endbr(file->object, function)) {
			while (*symbol && file->symbols[*symbol - 1].address == function)
				--*symbol;
			return listed;
		}
	}
	if (next < file->symbol_count && file->symbols[next].address - listed <= BEFORE_AT_MOST)
		return behind_endbr(file->object, file->symbols[next].address);
	return listed;
}

static bool is_meant(const struct file *file, uint64_t place, size_t symbol, struct search *search)
{
	if (!search->pattern)
		return true;
	for (size_t i = symbol; i < file->symbol_count; i++) {
		uint64_t function = file->symbols[i].address;
		if (place != function && place != behind_endbr(file->object, function))
			break;
		if (!fnmatch(search->pattern, file->symbols[i].name, 0))
			return true;
	}
	return false;
}

static void add(uint64_t place, struct functions *found)
{
	if (!(found->count & (found->count - 1))) {
		size_t room = found->count ? found->count * 2 : 1;
		uint64_t *larger = realloc(found->places, room * sizeof *larger);
		found->out_of_memory |= !larger;
		if (!larger)
			return;
		found->places = larger;
	}
	found->places[found->count++] = place;
}

static void look_into_list(const struct file *file, const Elf64_Shdr *section, struct search *search)
{
	uint64_t list = file->object->dlpi_addr + section->sh_addr;
	if (!is_loaded(file->object, list, section->sh_size, PF_R))
		return;
	for (uint64_t i = 0; i + 8 <= section->sh_size; i += 8) {
		uint64_t listed, place;
		size_t symbol;
		memcpy(&listed, (const char *)list + i, sizeof listed);
		place = place_of(file, listed, &symbol);
		if (!is_loaded(file->object, place, PLACE_BYTES, PF_X))
			continue;
		search->found->all++;
		if (is_meant(file, place, symbol, search))
			add(place, search->found);
	}
}

static int look_into_object(struct dl_phdr_info *object, size_t size, void *data)
{
	(void)size;
	struct search *search = data;
	struct file file;
	bool lists = false;
	if (open_file(object, &file))
		for (unsigned i = 0; i < file.header->e_shnum; i++)
			lists |= lists_places(&file, &file.sections[i]);
	if (lists) {
		find_symbols(&file);
		for (unsigned i = 0; i < file.header->e_shnum; i++)
			if (lists_places(&file, &file.sections[i]))
				look_into_list(&file, &file.sections[i], search);
		for (size_t i = 0; search->pattern && i < file.symbol_count; i++) {
			if (!fnmatch(search->pattern, file.symbols[i].name, 0))
				search->found->named++;
			nearest_look(&search->found->nearest, search->pattern, file.symbols[i].name);
		}
	}
	close_file(&file);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *one = a, *other = b;
	return *one < *other ? -1 : *one > *other;
}

void found_functions(const char *pattern, struct functions *found)
{
	*found = (struct functions){ 0 };
	struct search search = { pattern, found };
	dl_iterate_phdr(look_into_object, &search);
	qsort(found->places, found->count, sizeof *found->places, by_value);
	size_t kept = 0;
	for (size_t i = 0; i < found->count; i++)
		if (!kept || found->places[kept - 1] != found->places[i])
			found->places[kept++] = found->places[i];
	found->count = kept;
}

struct question {
	uint64_t address;
	bool answer;
};

static int ask(struct dl_phdr_info *object, size_t size, void *data)
{
	(void)size;
	struct question *question = data;
	question->answer |= is_loaded(object, question->address, PLACE_BYTES, PF_X);
	return question->answer;
}

bool function_is_loaded(uint64_t place)
{
	struct question question = { place, false };
	dl_iterate_phdr(ask, &question);
	return question.answer;
}

/* ---- single functions ---- */

/* The bytes in the file of code of the process; 0 if they are not in it. */
static const uint8_t *bytes_in_file(const struct file *file, uint64_t address, uint64_t bytes)
{
	for (int i = 0; i < file->object->dlpi_phnum; i++) {
		const Elf64_Phdr *part = &file->object->dlpi_phdr[i];
		uint64_t inside = address - (file->object->dlpi_addr + part->p_vaddr);
		if (part->p_type == PT_LOAD && part->p_flags & PF_X && inside < part->p_filesz && bytes <= part->p_filesz - inside &&
		    lies_in(file, part->p_offset, part->p_filesz))
			return file->bytes + part->p_offset + inside;
	}
	return 0;
}

/* 0 if its code is not whole. */
static const uint8_t *code_of(const struct file *file, const struct symbol *symbol)
{
	return symbol->size ? bytes_in_file(file, symbol->address, symbol->size) : 0;
}

static bool is_system(const struct dl_phdr_info *object)
{
	static const char *const names[] = { "libc.so", "libc-", "libc.musl-", "ld-linux-", "ld-musl-", "libpthread" };
	const char *slash = strrchr(object->dlpi_name, '/'), *name = slash ? slash + 1 : object->dlpi_name;
	bool found = object->dlpi_name[0] && is_loaded(object, (uint64_t)is_system, 1, PF_X);
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		found |= !strncmp(name, names[i], strlen(names[i]));
	return found;
}

struct find {
	const char *name;
	uint64_t address;
	struct found_function *found;
};

static void take(const struct file *file, const struct symbol *symbol, struct found_function *found)
{
	const uint8_t *bytes = code_of(file, symbol);
	if (!bytes || (found->count && found->address == symbol->address))
		return;
	found->count++;
	free(found->bytes);
	found->bytes = malloc(symbol->size);
	found->address = symbol->address;
	found->end = symbol->address + symbol->size;
	found->knows_all = found->lands = false;
	found->is_system = is_system(file->object);
	if (found->bytes)
		memcpy(found->bytes, bytes, symbol->size);
	for (unsigned i = 0; i < file->header->e_shnum; i++) {
		found->knows_all |= file->sections[i].sh_type == SHT_SYMTAB;
		found->lands |= is_named(file, &file->sections[i], ".gcc_except_table");
	}
}

static int find_in_object(struct dl_phdr_info *object, size_t size, void *data)
{
	(void)size;
	struct find *find = data;
	struct file file = { .object = object };
	if (!find->name && !is_loaded(object, find->address, 1, PF_X))
		return 0;
	if (open_file(object, &file)) {
		find_symbols(&file);
		for (size_t i = 0; i < file.symbol_count; i++) {
			const struct symbol *symbol = &file.symbols[i];
			if (find->name ? !strcmp(find->name, symbol->name) : find->address - symbol->address < symbol->size)
				take(&file, symbol, find->found);
			else if (find->name)
				nearest_look(&find->found->nearest, find->name, symbol->name);
		}
	}
	close_file(&file);
	return 0;
}

bool find_function(const char *name, uint64_t address, struct found_function *found)
{
	*found = (struct found_function){ 0 };
	struct find find = { name, address, found };
	dl_iterate_phdr(find_in_object, &find);
	return found->bytes && found->count == 1;
}

struct beside {
	uint64_t address;
	look_at_function *look;
	void *data;
};

static int look_beside(struct dl_phdr_info *object, size_t size, void *data)
{
	(void)size;
	const struct beside *beside = data;
	struct file file = { .object = object };
	if (!is_loaded(object, beside->address, 1, PF_X))
		return 0;
	if (open_file(object, &file)) {
		find_symbols(&file);
		for (size_t i = 0; i < file.symbol_count; i++) {
			const struct symbol *symbol = &file.symbols[i];
			const uint8_t *bytes = code_of(&file, symbol);
			if (bytes)
				beside->look(bytes, symbol->address, symbol->address + symbol->size, beside->data);
		}
	}
	close_file(&file);
	return 1;
}

void each_function_beside(uint64_t address, look_at_function *look, void *data)
{
	struct beside beside = { address, look, data };
	dl_iterate_phdr(look_beside, &beside);
}
