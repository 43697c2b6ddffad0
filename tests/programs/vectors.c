/* Any part of the vector state and the x87 unit that is in use at a marker is unchanged after it, though the connected
 * function changes all of it. */
#include "hard.h"
#include <cpuid.h>
#include <nopal.h>
#include <nopal_probe.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define X87 0x01
#define SSE 0x02
#define AVX 0x04
#define OPMASK 0x20
#define ZMM 0x40
#define HIGH_ZMM 0x80
#define GENERAL __attribute__((target("general-regs-only")))
#define LOW ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
#define HIGH ".irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
#define MASKS ".irp n, 0, 1, 2, 3, 4, 5, 6, 7\n"
#define EACH(registers, instruction) __asm__ volatile(registers instruction "\n.endr" : : : "memory")

/* The states of the x87 unit. */
enum unit { UNUSED, EMPTY, FLAGGED, THREE, FULL, MMX, PENDING, EMPTY_PENDING, UNITS };

struct area {
	_Alignas(64) uint8_t bytes[4096];
};

/* The parts of the state that this processor has. */
static uint32_t there;

GENERAL KEPT static void restore_first_state(void)
{
	static struct area zero;
	__asm__ volatile("xrstor64 %0" : : "m"(zero), "a"(there), "d"(0));
	static const uint32_t mxcsr = 0x1f80;
	__asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
}

GENERAL KEPT static void save(struct area *area)
{
	__asm__ volatile("xsave64 %0" : "+m"(*area) : "a"(there), "d"(0));
}

/* Clears the parts that are not compared: the x87 unit's condition codes, which compilers keep across no assembly; the
 * address of its last instruction; its empty registers; and the bits of parts in use. */
static void simplify(struct area *area)
{
	area->bytes[3] &= 0xb8;
	for (unsigned i = 6; i < 24; i++)
		area->bytes[i] = 0;
	unsigned top = area->bytes[3] >> 3 & 7;
	for (unsigned i = 0; i < 8; i++)
		for (unsigned byte = 0; !(area->bytes[4] >> (top + i) % 8 & 1) && byte < 16; byte++)
			area->bytes[32 + 16 * i + byte] = 0;
	for (unsigned i = 416; i < 576; i++)
		area->bytes[i] = 0;
}

GENERAL KEPT static void use(uint32_t parts, enum unit unit)
{
	static const uint16_t unmasked = 0x037e;        /* invalid operations are exceptions */
	static const double numbers[8] = { 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5 };
	if (parts & SSE)
		EACH(LOW, "mov $0x0101010101010101 * (\\n + 1), %%rax; movq %%rax, %%xmm\\n");
	if (parts & AVX)
		EACH(LOW, "mov $0x0101010101010101 * (\\n + 17), %%rax; vmovq %%rax, %%xmm\\n; "
			  "vinsertf128 $1, %%xmm\\n, %%ymm\\n, %%ymm\\n");
	if (parts & ZMM)
		EACH(LOW, "mov $0x0101010101010101 * (\\n + 33), %%rax; vpbroadcastq %%rax, %%zmm\\n");
	if (parts & HIGH_ZMM)
		EACH(HIGH, "mov $0x0101010101010101 * (\\n + 49), %%rax; vpbroadcastq %%rax, %%zmm\\n");
	if (parts & OPMASK)
		EACH(MASKS, "mov $0x0101010101010101 * (\\n + 65), %%rax; kmovq %%rax, %%k\\n");
	switch (unit) {
	case EMPTY:
		__asm__ volatile("fld1; fstp %st(0)");
		break;
	case FLAGGED:   /* inexact */
		__asm__ volatile("fld1; fldpi; fdivrp; fstp %st(0)");
		break;
	case THREE:
	case FULL:
		for (int i = 0; i < (unit == FULL ? 8 : 3); i++)
			__asm__ volatile("fldl %0" : : "m"(numbers[i]));
		break;
	case MMX:
		__asm__ volatile("mov $0x1234, %%eax; movd %%eax, %%mm3" : : : "rax");
		break;
	case PENDING:
		__asm__ volatile("fldcw %0; fldz; fldz; fdivrp" : : "m"(unmasked));
		break;
	case EMPTY_PENDING:
		__asm__ volatile("fldcw %0; fstp %%st(0)" : : "m"(unmasked));
		break;
	default:
		break;
	}
}

/* An ordinary function, which changes every part that functions may change. */
static void change_all(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)marker;
	CHECK(values[0] == 7);
	++*(long *)data;
	__asm__ volatile("fld1; fldz; fdivrp; fldpi; fldpi; fldpi; fldpi; fldpi; fldpi; fldpi\n"
			 ".rept 8\nfstp %st(0)\n.endr");
	EACH(LOW, "pcmpeqd %%xmm\\n, %%xmm\\n");
	__asm__ volatile("xorps %xmm0, %xmm0; divss %xmm0, %xmm0");
	if (there & AVX)
		EACH(LOW, "vcmptrueps %%ymm\\n, %%ymm\\n, %%ymm\\n");
	if (there & ZMM) {
		EACH(LOW, "vpternlogd $255, %%zmm\\n, %%zmm\\n, %%zmm\\n");
		EACH(HIGH, "vpternlogd $255, %%zmm\\n, %%zmm\\n, %%zmm\\n");
		EACH(MASKS, "kxnorq %%k\\n, %%k\\n, %%k\\n");
	}
}

static long general_hits;

NOPAL_PROBE(count)(void *data, const struct nopal_description *marker, const uint64_t *values)
{
	(void)marker;
	general_hits += (long)values[0];
	++*(long *)data;
}

static void check(uint32_t parts, enum unit unit)
{
	static struct area before, after;
	restore_first_state();
	use(parts, unit);
	save(&before);
	NOPAL_MARK(amid, "seven=%d", 7);
	save(&after);
	__asm__ volatile("fnclex");
	restore_first_state();
	simplify(&before);
	simplify(&after);
	for (unsigned i = 0; i < sizeof before; i++)
		if (before.bytes[i] != after.bytes[i]) {
			printf("parts %#x, unit %d: byte %u is %#x, not %#x\n", parts, unit, i, after.bytes[i], before.bytes[i]);
			exit(1);
		}
}

static long check_all(void)
{
	long checks = 0;
	for (uint32_t parts = 0; parts < 256; parts++)
		for (enum unit unit = UNUSED; !(parts & ~there & ~X87) && !(parts & X87) && unit < UNITS; unit++, checks++)
			check(parts, unit);
	return checks;
}

int main(void)
{
	unsigned eax, ebx, ecx, edx;
	CHECK(__get_cpuid(1, &eax, &ebx, &ecx, &edx));
	CHECK(ecx & bit_OSXSAVE);
	__asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
	there = eax & (X87 | SSE | AVX | OPMASK | ZMM | HIGH_ZMM);

	long hits = 0, counted = 0;
	CHECK(nopal_connect("amid", "seven=%d", change_all, &hits) == 0);
	long checks = check_all();
	CHECK(hits == checks && checks >= UNITS);
	CHECK(nopal_connect("amid", 0, count, &counted) == 0);
	check_all();
	CHECK(nopal_disconnect("amid", change_all, &hits) == 0);
	check_all();
	CHECK(hits == 2 * checks && counted == 2 * checks && general_hits == 14 * checks);
	CHECK(nopal_disconnect("amid", count, &counted) == 0);
	puts("done");
	return 0;
}
