/* A collector that finds frames by their return addresses, in a table of 32-bit distances. */
#include "hard.h"

#include <stdint.h>

#ifdef HOLD
enum { ROUNDS = 100000 };
#else
enum { ROUNDS = 1000 };
#endif

/* Each entry: the distance of a return address from the table's start, and the size of the frame above it; 0 is the last
 * one's. */
extern const int32_t frames[];
extern const int32_t frames_end[];

long enter(long levels);

KEPT __attribute__((used)) void collect(const uintptr_t *stack)
{
	for (;;) {
		const int32_t *frame = frames;
		while (frame != frames_end && (uintptr_t)frames + (uintptr_t)frame[0] != *stack)
			frame += 2;
		CHECK(frame != frames_end);
		if (frame[1] == 0)
			return;
		stack += frame[1] / 8;
	}
}

#define FUNCTION(name, text)                                                                                         \
	".type " name ", @function\n" name ": .cfi_startproc\nsub $8, %rsp\n.cfi_def_cfa_offset 16\n" text               \
	"\nadd $8, %rsp\nret\n.cfi_endproc\n.size " name ", . - " name "\n"
/* Calls the next one, or the collector in the last frame. */
#define LEVEL(number, next)                                                                                          \
	FUNCTION("level_" #number, "test %rdi, %rdi; jz 1f; dec %rdi; call level_" #next "\ndeeper_" #number                 \
				   ": jmp 2f\n1: lea -8(%rsp), %rdi; call collect\ncollects_" #number ": 2: mov $" #number    \
				   ", %eax")
#define ENTRIES(number) ".long deeper_" #number " - frames, 16, collects_" #number " - frames, 16\n"

__asm__(".text\n"
	LEVEL(0, 1) LEVEL(1, 2) LEVEL(2, 3) LEVEL(3, 4) LEVEL(4, 5) LEVEL(5, 6) LEVEL(6, 7) LEVEL(7, 8)
	LEVEL(8, 9) LEVEL(9, 10) LEVEL(10, 11) LEVEL(11, 12) LEVEL(12, 13) LEVEL(13, 14) LEVEL(14, 15)
	LEVEL(15, 16) LEVEL(16, 17) LEVEL(17, 18) LEVEL(18, 19) LEVEL(19, 0)
	".globl enter\n"
	FUNCTION("enter", "call level_0\nentered:")
	".section .rodata\n.balign 4\n.globl frames\nframes:\n"
	ENTRIES(0) ENTRIES(1) ENTRIES(2) ENTRIES(3) ENTRIES(4) ENTRIES(5) ENTRIES(6) ENTRIES(7) ENTRIES(8)
	ENTRIES(9) ENTRIES(10) ENTRIES(11) ENTRIES(12) ENTRIES(13) ENTRIES(14) ENTRIES(15) ENTRIES(16)
	ENTRIES(17) ENTRIES(18) ENTRIES(19)
	".long entered - frames, 0\n.globl frames_end\nframes_end:\n.text\n");

int main(void)
{
	long sum = 0;
	for (int round = 0; round < ROUNDS; round++)
		sum += enter(round % 50);
	printf("%ld\ncalls: %d enter\n", sum, ROUNDS);
	return 0;
}
