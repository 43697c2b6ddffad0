/* Three processes, two of them forked from the first, so that all have the same code at the same addresses. The last one
 * has memory of its own where nopal's is in the others. Prints their numbers, and at a line on standard input has each
 * call leaf(), 1,000 times, 2,000 times and 3,000 times. */
#define _GNU_SOURCE
#include "hard.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIBLINGS 3

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

int main(void)
{
	char line[16];
	int here[2], go[2], number = 1;
	pid_t processes[SIBLINGS] = { getpid() };
	CHECK(pipe(here) == 0 && pipe(go) == 0);
	for (int next = 2; next <= SIBLINGS && number == 1; next++) {
		processes[next - 1] = fork();
		CHECK(processes[next - 1] >= 0);
		if (processes[next - 1] == 0)
			number = next;
	}
	if (number == 1) {
		for (int i = 1; i < SIBLINGS; i++)
			CHECK(read(here[0], line, 1) == 1);
		for (int i = 0; i < SIBLINGS; i++)
			printf("process %d\n", processes[i]);
		puts("ready");
		fflush(stdout);
		CHECK(fgets(line, sizeof line, stdin));
		CHECK(write(go[1], line, SIBLINGS - 1) == SIBLINGS - 1);
	} else {
		void *place = (void *)0x550000000000;
		const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
		if (number == SIBLINGS)
			CHECK(mmap(place, 4096, PROT_READ, flags, -1, 0) == place);
		CHECK(write(here[1], "h", 1) == 1 && read(go[0], line, 1) == 1);
	}
	for (int i = 0; i < 1000 * number; i++)
		CHECK(leaf(i) == i + 1);
	if (number != 1)
		return 5;
	for (int i = 1; i < SIBLINGS; i++) {
		int status;
		CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 5);
	}
	return 5;
}
