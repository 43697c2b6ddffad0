/* Calls functions at the targets of the jumps at their starts, and goes on doing so, as PyPy's compiled code does. It
 * is linked with -rdynamic, and exports a name by which PyPy is known. */
#define _GNU_SOURCE
#include "hard.h"
#include <string.h>
#include <unistd.h>

enum { JUMP = 5, ROUNDS = 300, KEPT_ADDRESSES = 16 };

typedef long function(long);

KEPT static long one(long n)
{
	EFFECT();
	return n + 1;
}

int rpython_startup_code(void)
{
	return 0;
}

static function *followed(function *at)
{
	const unsigned char *code = (const unsigned char *)at;
	int distance;
	while (*code == 0xe9) {
		memcpy(&distance, code + 1, sizeof distance);
		code += JUMP + distance;
	}
	return (function *)code;
}

int main(void)
{
	static function *addresses[KEPT_ADDRESSES];
	function *volatile plain = one;
	long sum = 0;
	for (int i = 0; i < KEPT_ADDRESSES; i++)
		addresses[i] = plain;
	for (int round = 0; round < ROUNDS; round++) {
		addresses[round % KEPT_ADDRESSES] = followed(plain);
		for (int i = 0; i < KEPT_ADDRESSES; i++)
			for (int n = 0; n < 50; n++)
				sum += addresses[i](n);
		usleep(3000);
	}
	printf("%ld\n", sum);
	return 16;
}
