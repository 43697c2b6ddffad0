/* Changes a constant in the first instruction of its own function, again and again, in text that it makes writable. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 200, CALLS = 100, PAGE = 4096, MOV = 0xb8 };

KEPT __attribute__((aligned(PAGE))) static int constant(void)
{
	int value;
	__asm__ volatile("movl $0, %0" : "=a"(value));
	return value;
}

KEPT __attribute__((aligned(PAGE))) static int apart(int n)
{
	EFFECT();
	return n + 3;
}

/* Otherwise nopal knew from the code that the function is read. */
static int (*volatile hidden)(void) = constant;

static void protect(int access)
{
#if defined ALWAYS
	access |= PROT_WRITE | PROT_EXEC;
#endif
	unsigned long page = (unsigned long)hidden;
#if defined BY_SYSTEM_CALL
	CHECK(syscall(SYS_mprotect, page, PAGE, access) == 0);
#elif defined WITH_KEY
	CHECK(syscall(SYS_pkey_mprotect, page, PAGE, access, -1) == 0);
#else
	CHECK(mprotect((void *)page, PAGE, access) == 0);
#endif
}

static void *call_on(void *unused)
{
	(void)unused;
	int sum = 0;
	for (int i = 0; i < ROUNDS * CALLS; i++)
		sum += apart(i) & 1;
	CHECK(sum == ROUNDS * CALLS / 2);
	return 0;
}

int main(void)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, 0, call_on, 0) == 0);
	for (int round = 1; round <= ROUNDS; round++) {
		for (int i = 0; i < CALLS; i++)
			CHECK(constant() == round - 1);
		/* Not executable meanwhile, at times. */
		protect(PROT_READ | PROT_WRITE | (round % 2 ? PROT_EXEC : 0));
		unsigned char *code = (unsigned char *)hidden;
		CHECK(*code == MOV);
		memcpy(code + 1, &round, sizeof round);
		protect(PROT_READ | PROT_EXEC);
		CHECK(constant() == round);
		usleep(3000);
	}
	CHECK(pthread_join(thread, 0) == 0);
	printf("%d\n", apart(constant()));
	return 16;
}
