/* Functions with room for a short jump only: a loop leads behind its first two bytes, or the next function begins after
 * three. Padding is within reach. With -DBUSY, threads call them all the time, under signals. With -DPATCHED, the program
 * writes over one of them, and at the next line back what was there. */
#include "hard.h"
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

int count_up(int n);
int nothing(int n);
int again(int n);

__asm__(".text\n"
	".p2align 4\n"
	".globl count_up\n.type count_up, @function\n"
	"count_up: .cfi_startproc\n"
	"	xor %eax, %eax\n"
	"1:	inc %eax\n"
	"	dec %edi\n"
	"	jnz 1b\n"
	"	ret\n"
	"	.cfi_endproc\n.size count_up, .-count_up\n"
	".p2align 4\n"
	".globl nothing\n.type nothing, @function\n"
	"nothing: .cfi_startproc\n"
	"	xor %eax, %eax\n"
	"	ret\n"
	"	.cfi_endproc\n.size nothing, .-nothing\n"
	".globl again\n.type again, @function\n"
	"again: .cfi_startproc\n"
	"	lea 1(%rdi), %eax\n"
	"	ret\n"
	"	.cfi_endproc\n.size again, .-again\n"
	".p2align 4\n");

// calls: 1000 count_up
// calls: 1000 nothing
// calls: 1000 again
static void call_each(void)
{
	for (int n = 1; n <= 1000; n++) {
		CHECK(count_up(n) == n);
		CHECK(nothing(n) == 0);
		CHECK(again(n) == n + 1);
	}
}

#ifdef BUSY

static void *work(void *unused)
{
	for (;;)
		call_each();
	return unused;
}

static void interrupt(int signal) { CHECK(nothing(signal) == 0); }

int main(void)
{
	char line[16];
	CHECK(signal(SIGALRM, interrupt) != SIG_ERR);
	struct itimerval often = { { 0, 200 }, { 0, 200 } };
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int i = 0; i < 8; i++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		puts("done");
		fflush(stdout);
	}
	_Exit(5);
}

#elif defined(PATCHED)

int main(void)
{
	char line[16], kept[2];
	void *page = (void *)((uintptr_t)nothing & -4096ul);
	CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	puts("ready");
	fflush(stdout);
	for (int is_over = 0; fgets(line, sizeof line, stdin); is_over = 1) {
		if (!is_over)
			memcpy(kept, (void *)nothing, sizeof kept);
		memcpy((void *)nothing, is_over ? kept : "\x90\x90", sizeof kept);
		if (is_over)
			call_each();
		puts("done");
		fflush(stdout);
	}
	return 5;
}

#else

int main(void)
{
	call_each();
	puts("end");
	return 5;
}

#endif
