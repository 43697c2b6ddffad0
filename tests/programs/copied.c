/* Copies its own functions, runs the copies, and compares them with the functions. */
#include "hard.h"
#include <string.h>
#include <sys/mman.h>

#ifdef HOLD
enum { ROUNDS = 300000 };
#else
enum { ROUNDS = 1000 };
#endif

/* Where the compiler knows the number, its own instructions copy them. */
enum { BYTES = 48 };
static volatile size_t bytes = BYTES;

long mixed(long value, long other) __attribute__((visibility("hidden")));
long added(long value, long other) __attribute__((visibility("hidden")));

/* Padding within the functions, as that between functions may have a jump. */
#define FUNCTION(name, text)                                                                                         \
	".globl " name "\n.type " name ", @function\n.balign 64\n" name ": " text "; ret\n.fill 48 - (. - " name           \
	"), 1, 0x90\n.size " name ", . - " name "\n"

__asm__(".text\n"
	FUNCTION("mixed", "imul $31, %rdi, %rax; add %rsi, %rax; imul $31, %rax; xor %rsi, %rax")
	FUNCTION("added", "lea (%rdi, %rsi, 2), %rax; lea 7(%rax, %rsi, 4), %rax; sub %rdi, %rax; add $12345, %rax"));

int main(void)
{
	char *room = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(room != MAP_FAILED);
	long (*copy)(long, long) = (long (*)(long, long))room;
	long sum = 0;
	for (int round = 0; round < ROUNDS; round++) {
		memcpy(room, (const void *)mixed, BYTES);
		CHECK(copy(round, 3) == mixed(round, 3));
		memcpy(room, (const void *)added, bytes);
		CHECK(copy(round, 3) == added(round, 3));
		CHECK(memcmp(room, (const void *)added, bytes) == 0);
		sum += copy(round, 5);
	}
	printf("%ld\n", sum);
	return 0;
}
