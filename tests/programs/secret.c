/* Works when it is told to, by a line. Before that, a line with "s" has it forbid other processes of its user to inspect
 * it, and one with "i" by an instruction of its own. */
#include "hard.h"
#include <string.h>
#include <sys/prctl.h>

KEPT static int work(int n)
{
	EFFECT();
	return n * 37 + 5;
}

int main(void)
{
	int sum = 0;
	puts("ready");
	for (char line[8]; fflush(stdout) == 0 && fgets(line, sizeof line, stdin); puts("worked")) {
		if (strchr(line, 's'))
			CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
		long result = 0;
		if (strchr(line, 'i'))
			__asm__ volatile("syscall" : "=a"(result) : "a"(157), "D"(PR_SET_DUMPABLE), "S"(0) : "rcx", "r11", "memory");
		CHECK(result == 0);
		for (int i = 0; i < 1000; i++)
			sum += work(i);
	}
	CHECK(prctl(PR_GET_DUMPABLE) == 0);
	printf("%d\n", sum);
	return 5;
}
