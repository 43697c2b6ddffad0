// Threads in pieces of code that stand for windows of a jump, and copies of them elsewhere. Prints where they are, as
// START END COPY, and after a byte on standard input which of the two each thread went through.
//
// "read": in a system call. "spin": in a loop. "handler": in a handler on its own stack that interrupted the loop.
// "shared", "secret": the same, with the stack in shared memory, or in memory that no other process can read.
// "coroutine": the same, but the handler has switched to another stack. "over": such a handler has returned.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define CODE(name, result)                                                                                             \
	"read_" name ": xor %eax, %eax\n xor %edi, %edi\n lea byte(%rip), %rsi\n mov $1, %edx\n syscall\n"             \
	"read_" name "_end: cmp $1, %eax\n jne failed\n mov $" result ", %eax\n ret\n"                                 \
	"spin_" name ": mov $7, %edx\n 1: mov %edx, spinning(%rip)\n mov go(%rip), %eax\n pause\n test %eax, %eax\n jz 1b\n" \
	"spin_" name "_end: mov $" result ", %eax\n ret\n"
__asm__(".text\n" CODE("here", "1") ".skip 4096, 0xcc\n" CODE("copy", "2") "failed: mov $3, %eax\n ret\n");
extern char read_here[], read_here_end[], read_copy[], spin_here[], spin_here_end[], spin_copy[];
char byte;
volatile int go, ready, spinning;
static const char *how;
static ucontext_t first, second;

static int run(void *code) {
	int result;
	__asm__ volatile("sub $128, %%rsp\n call *%1\n add $128, %%rsp\n" : "=a"(result) : "r"(code) : "rdi", "rsi", "rdx", "rcx", "r11", "memory");
	return result;
}

static int on_shared(void) {
	return !strcmp(how, "shared") || !strcmp(how, "secret");
}

static void handler(int signal) {
	if (!strcmp(how, "coroutine") && !spinning) {
		ualarm(1000, 0);
		return;
	}
	ready = 1;
	if (!strcmp(how, "coroutine"))
		swapcontext(&second, &first);
	while ((!strcmp(how, "handler") || on_shared()) && !go)
		usleep(1000);
}

static void await(volatile int *word) {
	while (!*word)
		usleep(1000);
}

static void *thread(void *argument) {
	int file = strcmp(how, "secret") ? -1 : syscall(SYS_memfd_secret, 0);
	if (file >= 0)
		ftruncate(file, 1 << 16);
	int kind = (on_shared() ? MAP_SHARED : MAP_PRIVATE) | (file < 0 ? MAP_ANONYMOUS : 0);
	stack_t stack = {.ss_sp = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, kind, file, 0), .ss_size = 1 << 16};
	sigaltstack(&stack, 0);
	return (void *)(long)run(argument);
}

static void coroutine(void) {
	run(spin_here);
}

int main(int argc, char **argv) {
	pthread_t id;
	void *result = 0;
	how = argv[1];
	sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler, .sa_flags = strcmp(how, "coroutine") ? SA_ONSTACK : 0}, 0);
	if (!strcmp(how, "read")) {
		printf("%p %p %p\n", read_here, read_here_end, read_copy);
		fflush(stdout);
		printf("%d\n", run(read_here));
		return 0;
	}
	printf("%p %p %p\n", spin_here, spin_here_end, spin_copy);
	if (!strcmp(how, "coroutine")) {
		getcontext(&second);
		second.uc_stack.ss_sp = malloc(1 << 16);
		second.uc_stack.ss_size = 1 << 16;
		second.uc_link = &first;
		makecontext(&second, coroutine, 0);
		// The signal comes while the loop runs on the coroutine's stack.
		sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler}, 0);
		ualarm(1000, 0);
		swapcontext(&first, &second);
	} else {
		pthread_create(&id, 0, thread, spin_here);
		await(&spinning);
		if (strcmp(how, "spin")) {
			pthread_kill(id, SIGUSR1);
			await(&ready);
		}
		if (!strcmp(how, "over")) {
			spinning = 0;
			await(&spinning);
		}
	}
	puts("ready");
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 1;
	go = 1;
	if (strcmp(how, "coroutine"))
		pthread_join(id, &result);
	else
		swapcontext(&first, &second);
	printf("%ld\n", (long)result);
	return 0;
}
