/* Words on a stack that lie in nopal's code, and beside that of an unwinder, and are no return addresses: as where a number
 * has replaced the lower half of an address. Waits for a line, fills them in, and is busy until there is another one. */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include "hard.h"

#define WORDS 32768
/* The first byte of every call by a register or memory, and the length of the longest. */
#define CALL 0xff
#define LONGEST 8
/* Of data behind an unwinder's code. */
#define BYTES 4096

struct mapping {
	uintptr_t begin;
	uintptr_t end;
};

/* The last one of code with this name. */
static struct mapping code(const char *name)
{
	struct mapping one, found = { 0 };
	char rights[5], line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps);
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &one.begin, &one.end, rights) == 3 && rights[2] == 'x' &&
		    strstr(line, name))
			found = one;
	CHECK(fclose(maps) == 0 && found.begin);
	return found;
}

int main(void)
{
	const unsigned char *volatile words[WORDS] = { 0 };
	const unsigned char *volatile beside[BYTES] = { 0 };
	puts("phase 0");
	fflush(stdout);
	CHECK(getchar() == '\n');
	const unsigned char *from = (const unsigned char *)code("/memfd:nopal").begin;
	for (int i = LONGEST; i < WORDS; i++)
		if (!memchr(from + i - LONGEST, CALL, LONGEST))
			words[i] = from + i;
	const unsigned char *data = (const unsigned char *)code("/libgcc_s").end;
	for (int i = 0; i < BYTES; i++)
		beside[i] = data + i;
	puts("filled");
	fflush(stdout);
	CHECK(fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK) == 0);
	for (char byte; read(STDIN_FILENO, &byte, 1) != 1;)
		for (volatile int i = 0; i < 1000000; i++) {
		}
	return words[0] || !beside[0];
}
