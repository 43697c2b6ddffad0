/* Moves its own code into huge pages while it runs, as databases do at their start. */
#define _GNU_SOURCE
#include "hard.h"
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

// calls: 2000 work

#define HUGE_PAGE (2 << 20)

extern char __executable_start, etext;

KEPT static int work(int n)
{
	EFFECT();
	return n * 37 + 5;
}

/* The code between does not belong to this function: it is copied, mapped again as anonymous memory, and copied back by
 * code in a page of its own. */
static __attribute__((section("mover"), aligned(4096), noinline)) int move(char *from, size_t bytes, char *copy)
{
	long result;
	register long flags __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	register long file __asm__("r8") = -1;
	register long offset __asm__("r9") = 0;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(9), "D"(from), "S"(bytes), "d"(PROT_READ | PROT_WRITE | PROT_EXEC), "r"(flags), "r"(file),
			   "r"(offset)
			 : "rcx", "r11", "memory");
	if (result < 0)
		return 0;
	__asm__ volatile("rep movsb" : "+D"(from), "+S"(copy), "+c"(bytes) : : "memory");
	return 1;
}

int main(void)
{
	int sum = 0;
	for (int i = 0; i < 1000; i++)
		sum += work(i);
	uintptr_t low = (uintptr_t)work & ~4095ul, high = low + 4096;
	if (high > ((uintptr_t)move & ~4095ul))
		high = (uintptr_t)move & ~4095ul;
	CHECK(low < high);
	char *copy = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(copy != MAP_FAILED);
	madvise(copy, HUGE_PAGE, MADV_HUGEPAGE);
	memcpy(copy, (char *)low, high - low);
	CHECK(move((char *)low, high - low, copy));
#ifdef ASKED
	puts("moved");
	for (char line[8]; fflush(stdout) == 0 && fgets(line, sizeof(line), stdin); puts("done"))
		for (int i = 0; i < 1000; i++)
			sum += work(i);
	return 5;
#endif
	for (int i = 0; i < 1000; i++)
		sum += work(i);
	printf("%d\n", sum);
	return 0;
}
