/* A program that reads memory that may be missing, in functions of assembly whose first instruction may fault. A signal
 * handler knows that instruction by its address, and has the thread go on elsewhere: at a place in the function, or at
 * the address that a table gives beside the instruction. */
#define _GNU_SOURCE
#include "hard.h"
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

/* Reads a number, or returns `otherwise`. */
long fetch(const long *place, long otherwise);
extern char fetch_otherwise[];
/* Copies bytes, and returns the number of bytes left. */
long copy(void *to, const void *from, long unused, long bytes);
struct recovery {
	char *fault, *goes_on;
};
extern const struct recovery recoveries[1];

__asm__(".text\n.p2align 4\n"
	".globl fetch, fetch_otherwise\n.hidden fetch_otherwise\n.type fetch, @function\n"
	"fetch:\n\tmov 0x0(%rdi), %rax\n\tnop\n\tnop\n\tret\n"
	"fetch_otherwise:\n\tmov %rsi, %rax\n\tret\n"
	".size fetch, . - fetch\n.p2align 4\n"
	".globl copy\n.type copy, @function\n"
	"copy:\n\trep movsb\n\tmov %rcx, %rax\n\tret\n.size copy, . - copy\n.p2align 4\n"
	"copy_goes_on:\n\tmov %rcx, %rax\n\tret\n.p2align 4\n"
	".section .data.rel.ro, \"aw\"\n.p2align 3\n.globl recoveries\n.hidden recoveries\n"
	"recoveries:\n\t.quad copy, copy_goes_on\n.text\n");

static long faults;

KEPT static void on_fault(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	(void)information;
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	char *at = (char *)registers[REG_RIP];
	faults++;
	if (at == (char *)fetch)
		at = fetch_otherwise;
	else if (at == recoveries[0].fault)
		at = recoveries[0].goes_on;
	else
		_Exit(98);
	registers[REG_RIP] = (greg_t)at;
}

KEPT static long work(const char *page, long n)
{
	char room[64];
	const char *end = page + 4096;
	long number = 7;
	long sum = fetch(&number, 1) + fetch((const long *)end, n);
	return sum + copy(room, end - n % 64, 0, 64);
}

int main(void)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_fault;
	action.sa_flags = SA_SIGINFO;
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED && mprotect(page + 4096, 4096, PROT_NONE) == 0);
	long sum = 0;
	for (long n = 0; n < 50000; n++)
		sum += work(page, n);
	printf("%ld after %ld faults\ncalls: 50000 work\ncalls: %ld on_fault\n", sum, faults, faults);
	return 0;
}
