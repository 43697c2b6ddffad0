/* Hooks functions of its own that other threads call meanwhile. */
#include "hard.h"
#include <errno.h>
#include <immintrin.h>
#include <nopal_probe.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;
static long all_hits, one_hits, over, wrong;

/* Takes all registers that hold arguments. */
KEPT double many(long a, long b, long c, long d, long e, long f, double g, double h, double i, double j, double k, double l,
		 double m, double n, long o)
{
	return (double)(a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + o) + g + 2 * h + 3 * i + 4 * j + 5 * k + 6 * l + 7 * m +
	       8 * n;
}

KEPT long variable(int count, ...)
{
	va_list values;
	va_start(values, count);
	double sum = 0;
	for (int i = 0; i < count; i++)
		sum += va_arg(values, double);
	va_end(values);
	return (long)sum;
}

KEPT __attribute__((target("avx"))) static int wide(__m256d value)
{
	double parts[4];
	__asm__ volatile("" : "+x"(value));
	_mm256_storeu_pd(parts, value);
	return parts[0] == 1 && parts[1] == 2 && parts[2] == 3 && parts[3] == 4;
}

__attribute__((target("avx"), noinline)) static int pass_wide(void)
{
	return wide(_mm256_set_pd(4, 3, 2, 1));
}

KEPT long descend(long depth)
{
	return depth ? 1 + RETURNED(descend(depth - 1)) : 0;
}

NOPAL_NOTRACE KEPT long left_out(long value)
{
	return value + 1;
}

/* Clobbers every register that it may, and is hooked itself. */
KEPT void clobber(double *values)
{
	for (int i = 0; i < 64; i++)
		values[i] = values[i] * 1.5 + i;
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile(".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n\t"
				 "vxorps %%ymm\\n, %%ymm\\n, %%ymm\\n\n\t"
				 ".endr" ::
					 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
					   "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
	__asm__ volatile("xor %%eax, %%eax; mov %%eax, %%ecx; mov %%eax, %%r10d; mov %%eax, %%r11d; mov %%eax, %%r8d; mov "
			 "%%eax, %%r9d; std; cld" ::
				 : "rax", "rcx", "r8", "r9", "r10", "r11", "cc");
}

NOPAL_NOTRACE static void on_any(unsigned long ip, unsigned long parent)
{
	double values[64] = { (double)ip };
	__atomic_add_fetch(&all_hits, 1, __ATOMIC_RELAXED);
	if (__atomic_load_n(&over, __ATOMIC_RELAXED) || !parent)
		__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
	clobber(values);
}

NOPAL_NOTRACE static void on_one(unsigned long ip, unsigned long parent)
{
	(void)parent;
	__atomic_add_fetch(&one_hits, 1, __ATOMIC_RELAXED);
	/* An endbr64 may come first. */
	if (ip - (unsigned long)many > 4)
		__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
	if (nopal_unhook(on_one) != -EDEADLK || nopal_hook("many", on_one) != -EDEADLK)
		__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
}

NOPAL_NOTRACE static void on_other(unsigned long ip, unsigned long parent)
{
	(void)ip;
	(void)parent;
}

static void on_signal(int number)
{
	(void)number;
	CHECK(many(1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 7, 8, 9) == 304);
}

static void *pass(void *argument)
{
	long *passed = argument;
	while (!stop) {
		CHECK(many(1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 7, 8, 9) == 304);
		CHECK(variable(5, 1.0, 2.0, 3.0, 4.0, 5.0) == 15);
		CHECK(!__builtin_cpu_supports("avx") || pass_wide());
		CHECK(descend(20) == 20);
		CHECK(left_out(1) == 2);
		if (++*passed % 64 == 0)
			CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
	}
	return NULL;
}

static void reach(long *hits, long more)
{
	long wanted = __atomic_load_n(hits, __ATOMIC_RELAXED) + more;
	while (__atomic_load_n(hits, __ATOMIC_RELAXED) < wanted)
		usleep(100);
}

int main(int count, char **arguments)
{
	int rounds = count > 1 ? atoi(arguments[1]) : 4;
	if (count > 2)
		return printf("%d %s\n", nopal_hook(arguments[2], on_any), nopal_error()) < 0;
	CHECK(nopal_hook("manny", on_any) == -ENOENT);
	CHECK(!strcmp(nopal_error(), "no function \"manny\"; the nearest is many"));
	CHECK(nopal_hook("left_*", on_any) == -ENOTSUP && strstr(nopal_error(), "\"left_*\" has no room at its entry"));
	CHECK(nopal_unhook(on_any) == -ENOENT);

	signal(SIGUSR1, on_signal);
	pthread_t threads[2];
	long passed[2] = { 0 };
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, pass, &passed[i]) == 0);
	for (int round = 0; round < rounds; round++) {
		over = 0;
		CHECK(nopal_hook(round & 1 ? NULL : "[!_]*", on_any) > 5);
		CHECK(nopal_hook("many", on_any) == -EEXIST);
		reach(&all_hits, 100);
		CHECK(nopal_hook("many", on_one) == 1);
		reach(&one_hits, 100);
		CHECK(nopal_hook("descend", on_other) == 1);
		CHECK(nopal_unhook(on_any) == 0);
		over = 1;
		reach(&one_hits, 100);
		if (round == 0) {
			pid_t child = fork();
			if (child == 0)
				_exit(nopal_unhook(on_one) || nopal_unhook(on_other) || descend(3) != 3);
			int status;
			CHECK(waitpid(child, &status, 0) == child && status == 0);
		}
		CHECK(nopal_unhook(on_one) == 0);
		CHECK(nopal_unhook(on_other) == 0);
		long before = one_hits + all_hits;
		reach(&passed[0], 10);
		CHECK(before == one_hits + all_hits);
	}
	/* The function that on_any calls is hooked as well. */
	CHECK(nopal_cut_off() > 0 && wrong == 0);
	stop = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);

	over = 0;
	/* The hook is called exactly as often as the function, with the right caller. */
	CHECK(nopal_hook("descend", on_any) == 1);
	all_hits = 0;
	CHECK(descend(9) == 9);
	CHECK(all_hits == 10);
	CHECK(nopal_unhook(on_any) == 0);
	CHECK(descend(9) == 9 && all_hits == 10);
	puts("done");
	return 0;
}
