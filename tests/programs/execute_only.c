/* Text that can be executed, but not read. */
#define _GNU_SOURCE
#include "hard.h"
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS = 1000 };

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

static int execute_only(struct dl_phdr_info *file, size_t bytes, void *page)
{
	(void)bytes;
	/* The kernel's vDSO has all its data in its text. */
	if (strstr(file->dlpi_name, "vdso"))
		return 0;
	for (int i = 0; i < file->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &file->dlpi_phdr[i];
		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
			continue;
		uintptr_t start = (file->dlpi_addr + part->p_vaddr) & -*(uintptr_t *)page;
		uintptr_t end = file->dlpi_addr + part->p_vaddr + part->p_memsz;
		CHECK(mprotect((void *)start, end - start, PROT_EXEC) == 0);
	}
	return 0;
}

/* Runs before HOLD makes the program wait for a tracer. */
static __attribute__((constructor(101))) void start(void)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	CHECK(dl_iterate_phdr(execute_only, &page) == 0);
}

int main(void)
{
	for (long i = 0; i < ROUNDS; i++) {
		CHECK(leaf(i) == i + 1);
		usleep(1000);
	}
	puts("executed");
}
