/* Moves pages of its text to another address, calls the functions there and copies of them at the old address, and moves
 * the pages back, while another thread runs. So some page is moved for the first time at any moment at which a tracer
 * comes or goes. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 1200, PAGES = 400, PAGE = 4096, ACROSS = PAGE - 2, PAUSE = 500 };

/* The last function of a page ends in the next page. */
__asm__(".pushsection .text.pages, \"ax\", @progbits\n"
	".balign 4096\n"
	"pages:\n"
	".altmacro\n"
	".macro page n\n"
	".org pages + \\n * 4096 + 16, 0xcc\n"
	".type constant\\n, @function\n"
	"constant\\n: mov $\\n, %eax\n"
	"ret\n"
	".size constant\\n, . - constant\\n\n"
	".org pages + \\n * 4096 + 4094, 0xcc\n"
	".type across\\n, @function\n"
	"across\\n: xor %eax, %eax\n"
	"lea 2(%rdi), %eax\n"
	"ret\n"
	".size across\\n, . - across\\n\n"
	".endm\n"
	".set number, 0\n"
	".rept 401\n"
	"page %number\n"
	".set number, number + 1\n"
	".endr\n"
	".noaltmacro\n"
	".balign 4096\n"
	".popsection\n");
extern unsigned char pages[] __attribute__((visibility("hidden")));

/* Otherwise nopal knew from the code that the functions are read. */
static unsigned char *volatile first = pages;
static volatile int over;

static int constant(const unsigned char *page)
{
	return ((int (*)(void))(const void *)(page + 16))();
}

static int across(const unsigned char *page, int n)
{
	return ((int (*)(int))(const void *)(page + ACROSS))(n);
}

static void *move(void *from, void *to, int flags)
{
	flags |= MREMAP_MAYMOVE | MREMAP_FIXED;
#if defined BY_SYSTEM_CALL
	return (void *)syscall(SYS_mremap, from, PAGE, PAGE, flags, to);
#else
	return mremap(from, PAGE, PAGE, flags, to);
#endif
}

KEPT static int apart(int n)
{
	EFFECT();
	return n + 3;
}

static void *call_on(void *unused)
{
	while (!over) {
		for (int i = 0; i < 100; i++)
			CHECK(apart(i) == i + 3);
		usleep(100);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;
	unsigned char *away = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pthread_create(&thread, NULL, call_on, NULL) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		const int number = round % PAGES + 1;
		unsigned char *page = first + number * PAGE, *before = page - PAGE;
		CHECK(constant(page) == number && across(before, round) == round + 2);
#if defined STAYS
		CHECK(move(page, away, MREMAP_DONTUNMAP) == away);
#else
		CHECK(move(page, away, 0) == away);
#endif
		CHECK(constant(away) == number);
		usleep(PAUSE * (round & 1));
#if !defined STAYS
		void *copy = mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		CHECK(copy == page);
		memcpy(copy, away, PAGE);
		CHECK(mprotect(copy, PAGE, PROT_READ | PROT_EXEC) == 0);
#endif
		CHECK(constant(page) == number && across(before, round) == round + 2);
		/* What is free there, a tracer could use. */
		CHECK(move(away, page, MREMAP_DONTUNMAP) == page);
		CHECK(constant(page) == number && across(before, round) == round + 2);
		CHECK(across(page, round) == round + 2);
		usleep(PAUSE);
	}
	over = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	puts("all pages were moved");
	return 17;
}
