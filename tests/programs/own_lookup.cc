/* A program with its own functions by which unwinders find frames, and exceptions through many of them.
 *     FIND_OBJECT: a _dl_find_object that knows the files loaded at the start
 *     ITERATE: a dl_iterate_phdr that knows these, as some servers have it
 *     FIND_FDE: an _Unwind_Find_FDE */
#include <dlfcn.h>
#include <link.h>
#include <stdexcept>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vector>
#include "hard.h"

static volatile long asked;

#if defined(FIND_OBJECT) || defined(ITERATE)
static std::vector<dl_phdr_info> *kept;

static int keep(dl_phdr_info *information, size_t, void *to)
{
	static_cast<std::vector<dl_phdr_info> *>(to)->push_back(*information);
	return 0;
}

static __attribute__((constructor)) void begin()
{
	auto list = reinterpret_cast<decltype(&dl_iterate_phdr)>(dlsym(RTLD_NEXT, "dl_iterate_phdr"));
	auto *all = new std::vector<dl_phdr_info>;
	list(keep, all);
	kept = all;
}
#endif

#ifdef FIND_OBJECT
extern "C" int _dl_find_object(void *address, dl_find_object *found) noexcept
{
	asked = asked + 1;
	for (const dl_phdr_info &object : *kept) {
		const ElfW(Phdr) *code = nullptr, *frames = nullptr;
		for (int i = 0; i < object.dlpi_phnum; i++) {
			const ElfW(Phdr) &part = object.dlpi_phdr[i];
			if (part.p_type == PT_LOAD && (ElfW(Addr))address - object.dlpi_addr - part.p_vaddr < part.p_memsz)
				code = &part;
			if (part.p_type == PT_GNU_EH_FRAME)
				frames = &part;
		}
		if (code && frames) {
			memset(found, 0, sizeof *found);
			found->dlfo_map_start = (void *)(object.dlpi_addr + code->p_vaddr);
			found->dlfo_map_end = (char *)found->dlfo_map_start + code->p_memsz;
			found->dlfo_eh_frame = (void *)(object.dlpi_addr + frames->p_vaddr);
			return 0;
		}
	}
	return -1;
}
#endif

#ifdef ITERATE
extern "C" int dl_iterate_phdr(int (*callback)(dl_phdr_info *, size_t, void *), void *data)
{
	asked = asked + 1;
	for (dl_phdr_info &information : *kept)
		if (int answer = callback(&information, sizeof information, data))
			return answer;
	return 0;
}
#endif

#ifdef FIND_FDE
extern "C" const void *_Unwind_Find_FDE(void *address, void *bases)
{
	static auto next = reinterpret_cast<const void *(*)(void *, void *)>(dlsym(RTLD_NEXT, "_Unwind_Find_FDE"));
	asked = asked + 1;
	return next(address, bases);
}
#endif

extern "C" KEPT long deep(long n)
{
	if (n == 0)
		throw std::runtime_error("thrown");
	return RETURNED(deep(n - 1)) + 1;
}

extern "C" KEPT long caught(long n)
{
	try {
		return RETURNED(deep(n));
	} catch (const std::exception &error) {
		return (long)strlen(error.what());
	}
}

int main()
{
	const long rounds = 2000;
	long sum = 0;
	for (long i = 0; i < rounds; i++)
		sum += caught(i % 10);
	CHECK(sum == 6 * rounds);
	puts("caught them all");
	printf("calls: %ld caught\ncalls: %ld deep\n", rounds, rounds * 11 / 2);
	return 0;
}
