/* Grows its heap without malloc, directly behind its data, as GNU Common Lisp does. */
#define _DEFAULT_SOURCE
#include "hard.h"
#include <sys/personality.h>
#include <unistd.h>

// calls: 64 grow

#define PIECE (8 << 20)

KEPT static char *grow(void)
{
	char *piece = sbrk(PIECE);
	CHECK(piece != (void *)-1);
	piece[0] = piece[PIECE - 1] = 1;
	return piece + PIECE;
}

int main(int count, char **words)
{
	(void)count;
	if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE)) {
		CHECK(personality(ADDR_NO_RANDOMIZE) != -1);
		execv("/proc/self/exe", words);
	}
	char *end = sbrk(0);
	for (int i = 0; i < 64; i++) {
		CHECK(sbrk(0) == end);
		end = grow();
	}
	puts("grown");
	return 0;
}
