/* Changes constants in many functions, each in a page of its own that it makes writable for that, while other threads
 * run. So some page is changed for the first time at any moment at which a tracer comes or goes. With CALLED, the other
 * threads call functions in these pages that have no room for a jump, but for a short one. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS = 2000, PAGES = 400, PAGE = 4096, MOV = 0xb8, XOR = 0x31, INT3 = 0xcc, THREADS = 2, PAUSE = 500 };

__asm__(".pushsection .text.pages, \"ax\", @progbits\n"
	".balign 4096\n"
	"pages:\n"
	".altmacro\n"
	".macro constant n\n"
	".balign 4096\n"
	".type constant\\n, @function\n"
	"constant\\n: mov $0, %eax\n"
	"ret\n"
	".size constant\\n, . - constant\\n\n"
	".balign 64, 0xcc\n"
	".type short\\n, @function\n"
	"short\\n: xor %eax, %eax\n"
	"1: inc %eax\n"
	"dec %edi\n"
	"jnz 1b\n"
	"ret\n"
	".size short\\n, . - short\\n\n"
	".fill 8, 1, 0xcc\n"
	".type behind\\n, @function\n"
	"behind\\n: mov $7, %eax\n"
	"ret\n"
	".size behind\\n, . - behind\\n\n"
	".endm\n"
	".set number, 0\n"
	".rept 400\n"
	"constant %number\n"
	".set number, number + 1\n"
	".endr\n"
	".noaltmacro\n"
	".balign 4096\n"
	".popsection\n");
extern unsigned char pages[] __attribute__((visibility("hidden")));

/* Otherwise nopal knew from the code that the functions are read. */
static unsigned char *volatile first = pages;
static volatile int over;

enum { SHORT = 64, PADDING = SHORT + 9, BEHIND = PADDING + 8 };

static int call_short(int page, int n)
{
	return ((int (*)(int))(void *)(first + page * PAGE + SHORT))(n);
}

KEPT static int apart(int n)
{
	EFFECT();
	return n + 3;
}

static void *call_on(void *unused)
{
	for (int i = 0; !over; i++) {
		CHECK(apart(1) == 4);
#if defined CALLED
		CHECK(call_short(i / 20 % PAGES, 2) == 2);
#endif
	}
	return unused;
}

static void check_text(const unsigned char *code, unsigned value)
{
	unsigned found;
	memcpy(&found, code + 1, sizeof found);
	CHECK(*code == MOV && found == value);
	CHECK(code[SHORT] == XOR && code[BEHIND] == MOV);
	for (int i = PADDING; i < BEHIND; i++)
		CHECK(code[i] == INT3);
}

int main(void)
{
	static unsigned values[PAGES];
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], 0, call_on, 0) == 0);
	for (unsigned round = 1; round <= ROUNDS; round++) {
		unsigned *value = &values[round % PAGES];
		unsigned char *code = first + round % PAGES * PAGE;
		unsigned (*call)(void) = (unsigned (*)(void))(void *)code;
		CHECK(call() == *value);
#if defined CALLED
		const int access = PROT_READ | PROT_WRITE | PROT_EXEC;
#else
		const int access = PROT_READ | PROT_WRITE;
#endif
		CHECK(mprotect(code, PAGE, access) == 0);
		check_text(code, *value);
		usleep(PAUSE * (round & 1));
		check_text(code, *value);
		memcpy(code + 1, &round, sizeof round);
		CHECK(mprotect(code, PAGE, PROT_READ | PROT_EXEC) == 0);
		*value = round;
		CHECK(call() == round);
		CHECK(call_short((int)(round % PAGES), 3) == 3);
		usleep(PAUSE);
	}
	over = 1;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], 0) == 0);
	puts("all pages are as they were written");
	return 16;
}
