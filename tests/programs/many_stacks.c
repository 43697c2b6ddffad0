/* So many separate stacks, each with a guard, that they take most of the mappings that the kernel allows a process; and
 * the program needs the rest of these, too. */
#include "hard.h"
#include "switch_stacks.h"
#include <sys/mman.h>

enum { STACKS = 25000, BYTES = 256 << 10, PAGE = 4096, ROUNDS = 10, MORE = 6000 };

static void *scheduler, *flows[STACKS];
static long running, passed;

KEPT static long descend(long left)
{
	if (left)
		return RETURNED(descend(left - 1)) + 1;
	switch_stacks(&flows[running], scheduler);
	return 0;
}

static void flow(void)
{
	for (;;)
		passed += descend(5);
}

static void *mapped(size_t bytes, int protection)
{
	void *memory = mmap(0, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static void *begin(void)
{
	char *stack = mapped(BYTES, PROT_READ | PROT_WRITE);
	CHECK(mprotect(stack, PAGE, PROT_NONE) == 0);
	void **top = (void **)(stack + BYTES - 16);
	*--top = 0;
	*--top = (void *)flow;
	return top - 6;
}

/* Adjacent mappings differ in kind, so that the kernel does not merge them. */
static void need_mappings(void)
{
	static char *more[MORE];
	for (int i = 0; i < MORE; i++)
		more[i] = mapped(PAGE, i % 2 ? PROT_READ : PROT_NONE);
	for (int i = 0; i < MORE; i++)
		munmap(more[i], PAGE);
}

int main(void)
{
	for (long i = 0; i < STACKS; i++)
		flows[i] = begin();
	for (int round = 0; round < ROUNDS; round++) {
		for (running = 0; running < STACKS; running++)
			switch_stacks(&scheduler, flows[running]);
		need_mappings();
	}
	printf("%ld\n", passed);
}
