/* Seals its own text and libc's: no process can map or protect it otherwise. */
#define _GNU_SOURCE
#include "hard.h"
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MSEAL = 462, ROUNDS = 400 };

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

int main(void)
{
	char line[500], own[300] = { 0 };
	unsigned long begin, end;
	long sum = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps && readlink("/proc/self/exe", own, sizeof own - 1) > 0);
	/* Kernels before 6.10 lack it. */
	while (fgets(line, sizeof line, maps))
		if ((strstr(line, "libc.so.6") || strstr(line, own)) && sscanf(line, "%lx-%lx", &begin, &end) == 2)
			(void)syscall(MSEAL, begin, end - begin, 0);
	fclose(maps);
	for (int round = 0; round < ROUNDS; round++) {
		for (long i = 0; i < 3000; i++)
			sum += leaf(i);
		usleep(1000);
	}
	printf("%ld\n", sum);
	return 8;
}
