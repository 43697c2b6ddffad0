/* A minimal BPF program at functions of the kernel, which stores the time, the function, and whether it is entered or left
 * in a ring of each processor: kernel_bpf fentry|session FILE COMMAND..., with the functions' names in FILE, one a line.
 *
 * fentry: one program at the entry and one at the exit of each function. session: one program at the entries and exits of
 * all, by fprobe. The command runs meanwhile. Prints the number of functions that were on, the microseconds to switch them
 * on and off, and the number of records. It does without libbpf, since the guest has none. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <search.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

#define ENTRIES 1024
#define FUNCTIONS 65536
#define SESSION 56      /* BPF_TRACE_KPROBE_SESSION, of 6.10 */
#define IP 128          /* of struct pt_regs */

struct ring {
	uint64_t position;
	struct {
		uint64_t time, what;
	} entries[ENTRIES];
};

static const char *names[FUNCTIONS];
static int links[2 * FUNCTIONS], link_count, map;

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static int bpf(int command, union bpf_attr *attributes)
{
	return (int)syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

static void read_names(const char *path, int *count)
{
	FILE *file = fopen(path, "r");
	char line[512];
	if (!file)
		fail(path);
	while (*count < FUNCTIONS && fscanf(file, "%511s", line) == 1)
		names[(*count)++] = strdup(line);
	fclose(file);
}

/* ---- the kernel's types ---- */

/* The bytes that follow a type's struct btf_type. */
static size_t more(const struct btf_type *type)
{
	size_t count = BTF_INFO_VLEN(type->info);
	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return 4;
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
	case BTF_KIND_DATASEC:
	case BTF_KIND_ENUM64:
		return count * 12;
	case BTF_KIND_ENUM:
	case BTF_KIND_FUNC_PROTO:
		return count * 8;
	default:
		return 0;
	}
}

/* Makes a table of the functions' numbers by their names. */
static void read_types(void)
{
	const char *path = "/sys/kernel/btf/vmlinux";
	int file = open(path, O_RDONLY);
	struct stat status;
	if (file < 0 || fstat(file, &status))
		fail(path);
	char *types = malloc((size_t)status.st_size);
	for (off_t at = 0, got; at < status.st_size; at += got)
		if ((got = read(file, types + at, (size_t)(status.st_size - at))) <= 0)
			fail(path);
	close(file);
	const struct btf_header *header = (const void *)types;
	char *strings = types + header->hdr_len + header->str_off;
	const char *at = types + header->hdr_len + header->type_off, *end = at + header->type_len;
	hcreate(4 * FUNCTIONS);
	for (uintptr_t number = 1; at < end; number++) {
		const struct btf_type *type = (const void *)at;
		if (BTF_INFO_KIND(type->info) == BTF_KIND_FUNC)
			hsearch((ENTRY){ strings + type->name_off, (void *)number }, ENTER);
		at += sizeof *type + more(type);
	}
}

/* ---- programs ---- */

#define INSTRUCTION(code_, to, from, offset, value) \
	(struct bpf_insn) { .code = (code_), .dst_reg = (to), .src_reg = (from), .off = (offset), .imm = (value) }
#define MOVE(to, from) INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0)
#define SET(to, value) INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value)
#define CHANGE(operation, to, value) INSTRUCTION(BPF_ALU64 | (operation) | BPF_K, to, 0, 0, value)
#define LOAD(to, base, offset) INSTRUCTION(BPF_LDX | BPF_DW | BPF_MEM, to, base, offset, 0)
#define STORE(base, offset, from) INSTRUCTION(BPF_STX | BPF_DW | BPF_MEM, base, from, offset, 0)
#define CALL(function) INSTRUCTION(BPF_JMP | BPF_CALL, 0, 0, 0, function)

/* Loads the program and returns its file, or -1 if the kernel refuses it. */
static int program(union bpf_attr *attributes, struct bpf_insn what)
{
	const struct bpf_insn instructions[] = {
		what,                   /* into r7; r1 is the program's argument */
		CALL(BPF_FUNC_ktime_get_ns),
		MOVE(6, 0),
		INSTRUCTION(BPF_ST | BPF_W | BPF_MEM, 10, 0, -4, 0),
		MOVE(2, 10),
		CHANGE(BPF_ADD, 2, -4),
		INSTRUCTION(BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, map),
		INSTRUCTION(0, 0, 0, 0, 0),
		CALL(BPF_FUNC_map_lookup_elem),
		INSTRUCTION(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 9, 0),
		LOAD(1, 0, 0),
		MOVE(2, 1),
		CHANGE(BPF_ADD, 1, 1),
		STORE(0, 0, 1),
		CHANGE(BPF_AND, 2, ENTRIES - 1),
		CHANGE(BPF_LSH, 2, 4),
		INSTRUCTION(BPF_ALU64 | BPF_ADD | BPF_X, 0, 2, 0, 0),
		STORE(0, 8, 6),
		STORE(0, 16, 7),
		SET(0, 0),
		INSTRUCTION(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};
	attributes->insns = (uintptr_t)instructions;
	attributes->insn_cnt = sizeof instructions / sizeof *instructions;
	attributes->license = (uintptr_t)"GPL";
	return bpf(BPF_PROG_LOAD, attributes);
}

static int of_function(int number, enum bpf_attach_type where)
{
	const ENTRY *found = hsearch((ENTRY){ (char *)names[number], 0 }, FIND);
	if (!found) {
		errno = ENOENT;
		return -1;
	}
	union bpf_attr attributes = {
		.prog_type = BPF_PROG_TYPE_TRACING,
		.expected_attach_type = where,
		.attach_btf_id = (uint32_t)(uintptr_t)found->data,
	};
	int file = program(&attributes, SET(7, number << 1 | (where == BPF_TRACE_FEXIT)));
	if (file < 0)
		return -1;
	union bpf_attr link = { .raw_tracepoint.prog_fd = (uint32_t)file };
	int linked = bpf(BPF_RAW_TRACEPOINT_OPEN, &link), error = errno;
	close(file);
	errno = error;
	return linked;
}

/* Returns how many functions are on; of several, those that the kernel refuses are skipped. */
static int fentry_on(int count)
{
	int on = 0;
	for (int number = 0; number < count; number++) {
		int entry = of_function(number, BPF_TRACE_FENTRY);
		int exit = entry < 0 ? -1 : of_function(number, BPF_TRACE_FEXIT);
		if (exit >= 0) {
			links[link_count++] = entry;
			links[link_count++] = exit;
			on++;
		} else if (count == 1) {
			fail("fentry and fexit");
		} else if (entry >= 0) {
			close(entry);
		}
	}
	return on;
}

static int session_on(int count)
{
	union bpf_attr attributes = { .prog_type = BPF_PROG_TYPE_KPROBE, .expected_attach_type = SESSION };
	int file = program(&attributes, LOAD(7, 1, IP));
	if (file < 0)
		fail("the program");
	union bpf_attr link = {
		.link_create = { .prog_fd = (uint32_t)file, .attach_type = SESSION,
				 .kprobe_multi = { .cnt = (uint32_t)count, .syms = (uintptr_t)names } },
	};
	links[link_count] = bpf(BPF_LINK_CREATE, &link);
	if (links[link_count++] < 0)
		fail("no session of kprobes, which 6.10 brought");
	return count;
}

static uint64_t recorded(void)
{
	long processors = sysconf(_SC_NPROCESSORS_CONF);
	struct ring *rings = calloc((size_t)processors, sizeof *rings);
	uint32_t first = 0;
	union bpf_attr attributes = { .map_fd = (uint32_t)map, .key = (uintptr_t)&first, .value = (uintptr_t)rings };
	if (bpf(BPF_MAP_LOOKUP_ELEM, &attributes))
		fail("the map");
	uint64_t sum = 0;
	for (long i = 0; i < processors; i++)
		sum += rings[i].position;
	return sum;
}

int main(int count, char **words)
{
	if (count < 4)
		return 2;
	int function_count = 0, is_session = !strcmp(words[1], "session");
	read_names(words[2], &function_count);
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 3 * FUNCTIONS, 3 * FUNCTIONS });
	union bpf_attr attributes = { .map_type = BPF_MAP_TYPE_PERCPU_ARRAY, .key_size = 4, .value_size = sizeof(struct ring), .max_entries = 1 };
	map = bpf(BPF_MAP_CREATE, &attributes);
	if (map < 0)
		fail("a map");
	if (!is_session)
		read_types();

	double begin = nanoseconds();
	int on = is_session ? session_on(function_count) : fentry_on(function_count);
	double are_on = nanoseconds();
	pid_t child = fork();
	if (child == 0) {
		execvp(words[3], words + 3);
		_exit(1);
	}
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		fail(words[3]);
	uint64_t records = recorded();
	if (!records) {
		fprintf(stderr, "nothing was recorded\n");
		return 1;
	}
	double off = nanoseconds();
	for (int i = 0; i < link_count; i++)
		close(links[i]);
	printf("%d %.0f %.0f %lu\n", on, (are_on - begin) / 1e3, (nanoseconds() - off) / 1e3, records);
	return 0;
}
