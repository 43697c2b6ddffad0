/* Code that a probe must leave as it is: the red zone, all flags, the direction of string instructions, loops back to
 * the probe, and every register. Three arguments select a function, its calls and its threads. With `wait` after them,
 * the threads go on until standard input ends; with `block`, the first one blocks SIGTRAP meanwhile, with `handle` it
 * has a handler. Then standard input is read: `s` starts another program, `t` takes SIGTRAP, `f` does so in a
 * child. */
#include "red_zone.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

long backward(char *to, const char *from, long count);
long self_loop(long count);
long registers(long value);

__asm__(".text\n"
	RED_ZONE_FLAGS
	RED_ZONE_RESULT
	"	.cfi_endproc\n	.size red_zone, . - red_zone\n"
	/* The probe is between std and cld. */
	".globl backward\n.type backward, @function\n"
	"backward: .cfi_startproc\n"
	"	mov %rdx, %rcx\n"
	"	std\n"
	"/* backward+0x4 */\n"
	"	mov $3, %eax\n"
	"	rep movsb\n"
	"	cld\n"
	"	ret\n	.cfi_endproc\n	.size backward, . - backward\n"
	/* A loop of five bytes, all of which the jump needs. */
	".globl self_loop\n.type self_loop, @function\n"
	"self_loop: .cfi_startproc\n"
	"	xor %eax, %eax\n"
	"1:	/* self_loop+0x2 */\n"
	"	dec %rdi\n"
	"	jnz 1b\n"
	"	mov %rdi, %rax\n"
	"	ret\n	.cfi_endproc\n	.size self_loop, . - self_loop\n"
	".globl registers\n.type registers, @function\n"
	"registers: .cfi_startproc\n"
	"	mov $1, %eax\n	mov $2, %ecx\n	mov $3, %edx\n	mov $6, %esi\n"
	"	mov $8, %r8d\n	mov $9, %r9d\n	mov $10, %r10d\n	mov $11, %r11d\n"
	"/* registers+0x2c */\n"
	"	mov $0x1000, %edi\n"
	"	add %rcx, %rax\n	add %rdx, %rax\n	add %rsi, %rax\n	add %rdi, %rax\n"
	"	add %r8, %rax\n	add %r9, %rax\n	add %r10, %rax\n	add %r11, %rax\n"
	"	ret\n	.cfi_endproc\n	.size registers, . - registers\n");

struct request {
	long number;
	const char *name;
	char kind[8];
};

static atomic_long done;
static atomic_int stop;

/* Loops, a table of jumps, calls and divisions. */
__attribute__((noinline)) long mixed(struct request *request, int n)
{
	long sum = request->number;
	char text[32];
	for (int i = 0; i < n; i++) {
		switch (i % 7) {
		case 0: sum += 3; break;
		case 1: sum ^= i; break;
		case 2: sum *= 5; break;
		case 3: sum -= request->name[i % 4]; break;
		case 4: sum += snprintf(text, sizeof text, "%d %s", i, request->kind); break;
		case 5: sum = sum / 3 + sum % (i + 1); break;
		default: sum += (long)strlen(request->name) << (i % 5);
		}
	}
	return sum & 0xffffffffff;
}

__attribute__((noinline)) long counted(long thread, long i)
{
	long value = thread * 1000000 + i;
	atomic_fetch_add_explicit(&done, 1, memory_order_relaxed);
	return value * 7 + (value >> 3);
}

/* Two functions of one line. */
__attribute__((noinline, used)) long left(long n) { return n * 3; } __attribute__((noinline, used)) long right(long n) { return n * 5; }

struct job {
	long number;
	long times;
	long sum;
	char stack[1 << 14];
};

static void *work(void *data)
{
	struct job *job = data;
	stack_t stack = { .ss_sp = job->stack, .ss_size = sizeof job->stack };
	sigaltstack(&stack, 0);
	for (long i = 0; i < job->times || (job->times < 0 && !stop); i++) {
		job->sum += counted(job->number, i);
		if (job->times < 0 && i % 32 == 0)
			usleep(500);
	}
	return 0;
}

static atomic_int traps;

static void on_trap(int signal)
{
	(void)signal;
	traps++;
}

/* Handles SIGTRAP for a while. */
static void take_traps(const char *who)
{
	struct sigaction before, action = { .sa_handler = on_trap };
	sigaction(SIGTRAP, &action, &before);
	for (int i = 0; i < 5; i++)
		__asm__ volatile("int3");
	for (long i = 0; i < 100; i++)
		counted(1, i);
	printf("%s: %d traps, before: %s\n", who, traps, before.sa_handler == SIG_DFL ? "default" : "something");
	fflush(stdout);
}

static void obey(char letter)
{
	if (letter == 's')
		printf("spawned %d\n", WEXITSTATUS(system("exit 3")));
	fflush(stdout);
	if (letter == 't')
		take_traps("own");
	pid_t child = letter == 'f' ? fork() : -1;
	if (!child) {
		take_traps("child");
		_exit(0);
	}
	if (child > 0)
		waitpid(child, 0, 0);
}

int main(int count, char **words)
{
	long times = count > 1 ? atol(words[1]) : 10, threads = count > 2 ? atol(words[2]) : 1;
	int waits = count > 3;
	const char *word = waits ? words[3] : "";
	sigset_t trap;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	if (!strcmp(word, "handle"))
		signal(SIGTRAP, on_trap);
	struct request request = { 17, "name", "kind" };
	long sum = 0;
	static const long values[] = { 0, 1, -1, 77, -0x7fffffffffffffff - 1, 0x7fffffffffffffff };
	for (int i = 0; i < 6; i++)
		for (int j = 0; j < 6; j++)
			sum = sum * 31 + red_zone(values[i], values[j]);
	printf("flags and red zone %lx\n", sum);
	char text[] = "0123456789abcdef";
	backward(text + 15, text + 12, 10);
	printf("backward %s\n", text);
	printf("loop %ld, registers %ld\n", self_loop(times), registers(5));
	sum = 0;
	for (int i = 0; i < times; i++)
		sum += mixed(&request, i % 40);
	printf("mixed %ld\n", sum);
	fflush(stdout);

	pthread_t ids[64];
	static struct job jobs[64];
	for (long i = 0; i < threads; i++) {
		jobs[i].number = i;
		jobs[i].times = waits ? -1 : times;
		pthread_create(&ids[i], 0, work, &jobs[i]);
	}
	if (waits) {
		if (!strcmp(word, "block"))
			pthread_sigmask(SIG_BLOCK, &trap, 0);
		char byte;
		while (read(0, &byte, 1) > 0)
			obey(byte);
		stop = 1;
	}
	sum = 0;
	for (long i = 0; i < threads; i++) {
		pthread_join(ids[i], 0);
		sum += jobs[i].sum;
	}
	if (!waits)
		printf("counted %ld %ld\n", (long)done, sum);
	return 5;
}
