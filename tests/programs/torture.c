/* Ten thousand functions that threads call all the time, while signals come, children are forked, threads begin and end
 * and libraries are loaded and unloaded: torture FILE LIBRARY...
 *
 * An observer shares FILE, as below. While `closed` is not 0, no thread is inside any of these functions once `inside`
 * is 0. Prints "ready", and ends at the end of standard input with 5. */
#include "hard.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <nopal.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTIONS 10000
#define WORKERS 4
#define BURST 50

struct shared {
	uint64_t closed;
	uint64_t inside;
	uint64_t idle;          /* microseconds that a worker sleeps between two bursts of calls */
	uint64_t wrong;         /* results that are not what they should be */
	uint64_t marks;
	uint64_t handled;
	uint64_t forks;
	uint64_t threads;
	uint64_t loads;
	uint64_t library_calls;
	uint64_t counts[FUNCTIONS];
} *shared __attribute__((visibility("hidden")));

static volatile sig_atomic_t ended, workers_ended;

static uint64_t add(uint64_t *what, uint64_t n) { return __atomic_add_fetch(what, n, __ATOMIC_SEQ_CST); }
static uint64_t look(uint64_t *what) { return __atomic_load_n(what, __ATOMIC_SEQ_CST); }

/* f_N(x) counts itself and returns 3 x + N; there are five kinds of first instructions. The functions are in assembly,
 * since a compiler takes a quarter of a minute for so many. */
extern long (*const functions[FUNCTIONS])(long) __attribute__((visibility("hidden")));
_Static_assert(offsetof(struct shared, counts) == 80, "as below");
__asm__(".altmacro\n"
	".macro function n\n"
	".pushsection .data.rel.ro, \"aw\"\n"
	".quad f_\\n\n"
	".popsection\n"
	".p2align 4\n"
	".type f_\\n, @function\n"
	"f_\\n:\n"
	".cfi_startproc\n"
	".if \\n % 5 == 0\n"	/* relative to %rip */
	"	mov shared(%rip), %rax\n"
	"	lock incq 80 + 8 * \\n(%rax)\n"
	".elseif \\n % 5 == 1\n"	/* several instructions, and a frame */
	"	push %rbx\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	.cfi_rel_offset %rbx, 0\n"
	"	mov %rdi, %rbx\n"
	"	sub $16, %rsp\n"
	"	.cfi_adjust_cfa_offset 16\n"
	"	mov shared(%rip), %rax\n"
	"	lock incq 80 + 8 * \\n(%rax)\n"
	"	mov %rbx, %rdi\n"
	"	add $16, %rsp\n"
	"	.cfi_adjust_cfa_offset -16\n"
	"	pop %rbx\n"
	"	.cfi_adjust_cfa_offset -8\n"
	".elseif \\n % 5 == 2\n"	/* a branch */
	"	test %rdi, %rdi\n"
	"	js 1f\n"
	"1:	endbr64\n"
	"	mov shared(%rip), %rax\n"
	"	lock incq 80 + 8 * \\n(%rax)\n"
	".elseif \\n % 5 == 3\n"	/* single NOPs */
	"	nop; nop; nop; nop; nop\n"
	"	mov shared(%rip), %rax\n"
	"	lock incq 80 + 8 * \\n(%rax)\n"
	".else\n"			/* a call that the window ends with */
	"	call count_\\n\n"
	".endif\n"
	"	lea \\n(%rdi,%rdi,2), %rax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size f_\\n, . - f_\\n\n"
	".if \\n % 5 == 4\n"
	"count_\\n:\n"
	".cfi_startproc\n"
	"	mov shared(%rip), %rax\n"
	"	lock incq 80 + 8 * \\n(%rax)\n"
	"	ret\n"
	".cfi_endproc\n"
	".type count_\\n, @function\n"
	".size count_\\n, . - count_\\n\n"
	".endif\n"
	".endm\n"
	".pushsection .data.rel.ro, \"aw\"\n"
	".p2align 3\n"
	".hidden functions\n"
	".globl functions\n"
	"functions:\n"
	".popsection\n"
	".set number, 0\n"
	".rept 10000\n"
	"	function %number\n"
	"	.set number, number + 1\n"
	".endr\n"
	".pushsection .data.rel.ro, \"aw\"\n"
	".type functions, @object\n"
	".size functions, . - functions\n"
	".popsection\n"
	".noaltmacro\n");

static uint64_t random_number(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void call_some(uint64_t *state, int count)
{
	for (int i = 0; i < count; i++) {
		uint64_t number = random_number(state);
		long x = (long)(number >> 32);
		unsigned n = number % FUNCTIONS;
		if (functions[n](x) != x * 3 + n)
			add(&shared->wrong, 1);
	}
}

static void enter(void)
{
	while (add(&shared->inside, 1), look(&shared->closed)) {
		add(&shared->inside, -1);
		usleep(200);
	}
}

static void leave(void) { add(&shared->inside, -1); }

static void on_signal(int number)
{
	(void)number;
	uint64_t state = 0x9e3779b97f4a7c15 ^ look(&shared->handled);
	call_some(&state, 5);
	add(&shared->handled, 1);
}

static pthread_t workers[WORKERS];

static void *work(void *argument)
{
	uint64_t state = 1 + (uintptr_t)argument;
	while (!workers_ended) {
		enter();
		call_some(&state, BURST);
		NOPAL_MARK(burst, "state=%lu", state);
		add(&shared->marks, 1);
		leave();
		useconds_t idle = look(&shared->idle);
		if (idle)
			usleep(idle);
	}
	return NULL;
}

/* Each worker has one signal at a time; their sender stays inside until all are handled. */
static void *send_signals(void *unused)
{
	while (!ended) {
		enter();
		uint64_t before = look(&shared->handled);
		for (int i = 0; i < WORKERS; i++)
			CHECK(pthread_kill(workers[i], SIGUSR1) == 0);
		while (look(&shared->handled) != before + WORKERS)
			usleep(100);
		leave();
		usleep(1000);
	}
	return unused;
}

static void *call_once(void *argument)
{
	uint64_t state = (uintptr_t)argument;
	call_some(&state, BURST);
	return NULL;
}

static void *make_threads(void *unused)
{
	while (!ended) {
		pthread_t thread;
		enter();
		CHECK(pthread_create(&thread, NULL, call_once, (void *)(uintptr_t)add(&shared->threads, 1)) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		leave();
		usleep(3000);
	}
	return unused;
}

static void *make_children(void *unused)
{
	while (!ended) {
		int status;
		enter();
		uint64_t state = add(&shared->forks, 1);
		pid_t child = fork();
		CHECK(child >= 0);
		if (!child) {
			call_some(&state, BURST);
			_exit(7);
		}
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
		leave();
		usleep(30000);
	}
	return unused;
}

static int back(int n) { return n; }

static void *load_libraries(void *arguments)
{
	while (!ended) {
		for (char **path = arguments; *path; path++) {
			enter();
			void *library = dlopen(*path, RTLD_NOW);
			CHECK(library);
			int (*entry)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "library_entry");
			CHECK(entry);
			if (entry(back, 3) != 46)
				add(&shared->wrong, 1);
			add(&shared->library_calls, 3);
			CHECK(dlclose(library) == 0);
			add(&shared->loads, 1);
			leave();
			usleep(10000);
		}
	}
	return NULL;
}

int main(int count, char **arguments)
{
	CHECK(count >= 3);
	int file = open(arguments[1], O_RDWR);
	CHECK(file >= 0 && ftruncate(file, sizeof *shared) == 0);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(shared != MAP_FAILED && close(file) == 0);
	/* The mappings must be equal at all times without a thread inside. */
	mallopt(M_ARENA_MAX, 1);

	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	pthread_t others[4];
	void *(*const what[4])(void *) = { send_signals, make_threads, make_children, load_libraries };
	for (int i = 0; i < WORKERS; i++)
		CHECK(pthread_create(&workers[i], NULL, work, (void *)(uintptr_t)(i + 1)) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&others[i], NULL, what[i], arguments + 2) == 0);
	puts("ready");
	fflush(stdout);
	char byte;
	while (read(0, &byte, 1) > 0) {
	}
	ended = 1;
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(others[i], NULL) == 0);
	workers_ended = 1;      /* They get no more signals. */
	for (int i = 0; i < WORKERS; i++)
		CHECK(pthread_join(workers[i], NULL) == 0);
	puts("end");
	return 5;
}
