/* Allocates some memory, makes calls, reports both, and aborts when its input ends. */
#include "hard.h"
#include <string.h>
#include <unistd.h>

KEPT static int descend(int left) { return left ? RETURNED(descend(left - 1)) + 1 : 0; }

int main(void)
{
	char byte;
	size_t size = 32 << 20;
	char *memory = malloc(size);
	CHECK(memory);
	memset(memory, 1, size);
	for (int i = 0; i < 1000; i++)
		CHECK(descend(1000) == 1000);
	printf("calls: 1001000 descend\n");
	printf("process %d\n", getpid());
	fflush(stdout);
	CHECK(read(0, &byte, 1) == 0);
	abort();
}
