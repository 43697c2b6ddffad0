/* A child writes over all generated code that it finds in itself: nothing of that is its parent's. By its own system calls
 * alone, since its functions are not to be called any more. */
#include "hard.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// calls: 2000 work

enum { MOST = 64 };

KEPT static int work(int value)
{
	EFFECT();
	return value + 1;
}

static inline __attribute__((always_inline)) long system_call(long number, long a, long b, long c)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}

static void child(void)
{
	unsigned long places[MOST][2];
	int count = 0;
	char line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps);
	while (count < MOST && fgets(line, sizeof line, maps)) {
		char may[8];
		CHECK(sscanf(line, "%lx-%lx %7s", &places[count][0], &places[count][1], may) == 3);
		if (may[2] == 'x' && strstr(line, "memfd:nopal"))
			count++;
	}
	fclose(maps);
	for (int i = 0; i < count; i++) {
		unsigned long start = places[i][0], bytes = places[i][1] - start;
		if (system_call(SYS_mprotect, (long)start, (long)bytes, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
			continue;
		for (unsigned long at = 0; at < bytes; at++)
			((volatile unsigned char *)start)[at] = 0xcc;
	}
	system_call(SYS_exit_group, 0, 0, 0);
}

int main(void)
{
	int sum = 0, status;
	for (int i = 0; i < 1000; i++)
		sum += work(i);
	fflush(stdout);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		child();
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	for (int i = 0; i < 1000; i++)
		sum += work(i);
	printf("%d\n", sum);
	return 0;
}
