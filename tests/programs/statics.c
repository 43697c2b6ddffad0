/* Passes static probes of sys/sdt.h as often as a line of input states, and prints the number of listeners. */
#include "hard.h"
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

volatile unsigned short counted_values_semaphore __attribute__((section(".probes")));
volatile unsigned short counted_others_semaphore __attribute__((section(".probes")));

static volatile short global = -7;

KEPT static long passes(int i, unsigned char c, const char *text, long *memory)
{
	STAP_PROBE4(counted, values, i, c, text, memory[1]);
	long sum = i + c + memory[1] + text[0];
	STAP_PROBE2(counted, others, 5, global);
	return sum * (global + 8);
}

int main(void)
{
	long sum = 0, times, memory[2] = { 1, 1L << 40 };
	while (scanf("%ld", &times) == 1) {
		for (long n = 0; n < times; n++)
			sum += passes(-(int)n, (unsigned char)(n + 250), "text", memory);
		printf("%d %d done\n", counted_values_semaphore, counted_others_semaphore);
		fflush(stdout);
	}
	printf("%ld\n", sum);
	return 5;
}
