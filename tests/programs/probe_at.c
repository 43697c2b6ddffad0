/* Probes a program at its own instructions and returns: alone everywhere, and at NOPs while threads pass. */
#include "hard.h"
#include "red_zone.h"
#include <errno.h>
#include <nopal.h>
#include <nopal_probe.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char red_zone_end[];

__asm__(".text\n"
	RED_ZONE_FLAGS
	"	std\n	mov $0, %edx\n	cld\n"
	RED_ZONE_RESULT
	".globl red_zone_end\nred_zone_end: .cfi_endproc\n	.size red_zone, . - red_zone\n");

static volatile double scale = 1.5;

/* Loops, a call, floating point, memory by the instruction pointer. */
KEPT long mixed(long n)
{
	double sum = scale;
	for (long i = 0; i < n; i++)
		sum = sum * 1.25 + (double)(i ^ n);
	return (long)sum + (n > 3 ? red_zone(n, 2) : red_zone(2, n));
}

KEPT __attribute__((patchable_function_entry(5))) long with_room(long a, long b)
{
	EFFECT();
	return a * 10 + b;
}

long several(long n);
long tail(long n);
long narrow(long n);

__asm__(".text\n"
	/* Returns 7 for 0, else one more. Its returns take five bytes; a jump leads to the begin of the first. */
	".globl several\n.type several, @function\n"
	"several: .cfi_startproc\n"
	"	sub $24, %rsp\n	.cfi_adjust_cfa_offset 24\n"
	"	test %rdi, %rdi\n"
	"	jz 1f\n"
	"	lea 1(%rdi), %rax\n"
	"	.cfi_remember_state\n"
	"	add $24, %rsp\n	.cfi_adjust_cfa_offset -24\n"
	"	ret\n"
	"	.cfi_restore_state\n"
	"1:	mov $7, %eax\n"
	"	add $24, %rsp\n	.cfi_adjust_cfa_offset -24\n"
	"	ret\n	.cfi_endproc\n	.size several, . - several\n"
	".globl tail\n.type tail, @function\n"
	"tail:	inc %rdi\n"
	"	jmp several\n	.size tail, . - tail\n"
	/* A jump leads to the return itself. */
	".globl narrow\n.type narrow, @function\n"
	"narrow: mov %rdi, %rax\n"
	"	test %rax, %rax\n"
	"	jz 1f\n"
	"	inc %rax\n"
	"	inc %rax\n"
	"1:	ret\n	.size narrow, . - narrow\n");

KEPT long marked(long n)
{
	NOPAL_MARK(here, "n=%ld", n);
	return n;
}

/* ---- probes ---- */

NOPAL_REGISTER_PROBE(counts)(void *data, struct nopal_registers *registers)
{
	(void)registers;
	__atomic_add_fetch((long *)data, 1, __ATOMIC_RELAXED);
}

/* Uses vector registers and the x87 unit. */
static void ordinary(void *data, struct nopal_registers *registers)
{
	volatile double vector[4] = { 0 };
	volatile long double x87 = 1;
	for (int i = 0; i < 4; i++)
		vector[i] += i + 0.5 + (double)registers->flags;
	x87 *= (long double)vector[3];
	++*(long *)data;
}

static void looks(void *data, struct nopal_registers *registers)
{
	struct nopal_registers *seen = data;
	*seen = *registers;
}

static void changes(void *data, struct nopal_registers *registers)
{
	(void)data;
	registers->di += 100;
	registers->si = 3;
}

static void changes_result(void *data, struct nopal_registers *registers)
{
	*(long *)data = (long)registers->ax;
	registers->ax = 42;
}

/* ---- alone ---- */

static long cases(long (*function)(long))
{
	long sum = 0;
	for (long n = 0; n < 8; n++)
		sum = sum * 31 + function(n);
	return sum;
}

static long zones(long n)
{
	return red_zone(n - 4, 3) * 31 + red_zone(INT64_MIN + 1, n) * 7 + red_zone(INT64_MAX, -n);
}

/* Probes each instruction of a function, one after the other, and all together. */
static void everywhere(const char *name, uint64_t size, long (*function)(long), nopal_register_probe *probe)
{
	static uint8_t text[4096];
	static long hits[4096];
	uint64_t begin = 0;
	struct nopal_registers seen = { 0 };
	CHECK(size < sizeof text);
	CHECK(nopal_probe_at(name, looks, &seen) == 0);
	long expected = cases(function);
	CHECK(nopal_unprobe(looks, &seen) == 0 && seen.ip && cases(function) == expected);
	begin = seen.ip;
	memcpy(text, (const void *)begin, size);
	int placed = 0, together = 0;
	for (int round = 0; round < 2; round++) {
		for (uint64_t offset = 0; offset < size; offset++) {
			char place[64];
			snprintf(place, sizeof place, offset % 2 ? "%s+0x%lx" : "%s+%lu", name, offset);
			hits[offset] = 0;
			int error = nopal_probe_at(place, probe, &hits[offset]);
			CHECK(error == 0 || error == -ENOTSUP || error == -EINVAL || (round && error == -EBUSY));
			if (error) {
				hits[offset] = -1;
				continue;
			}
			(round ? &together : &placed)[0]++;
			CHECK(nopal_probe_at(place, probe, &hits[offset]) == -EEXIST);
			CHECK(memcmp(text, (const void *)begin, size));
			CHECK(cases(function) == expected);
			CHECK(hits[offset] > 0);
			if (!round) {
				CHECK(nopal_unprobe(probe, &hits[offset]) == 0);
				CHECK(!memcmp(text, (const void *)begin, size));
			}
		}
	}
	CHECK(placed > 5 && together > 1);
	CHECK(cases(function) == expected);
	for (uint64_t offset = 0; offset < size; offset++)
		CHECK(hits[offset] < 0 || nopal_unprobe(probe, &hits[offset]) == 0);
	CHECK(!memcmp(text, (const void *)begin, size) && cases(function) == expected);
}

static void refusals(void)
{
	long hits = 0;
	CHECK(nopal_probe_at("with_rome", counts, &hits) == -ENOENT);
	CHECK(!strcmp(nopal_error(), "no function \"with_rome\"; the nearest is with_room"));
	CHECK(nopal_probe_at("red_zone+1", counts, &hits) == -EINVAL);
	CHECK(!strcmp(nopal_error(), "\"red_zone+1\" is inside an instruction, which begins at +0x0"));
	CHECK(nopal_probe_at("red_zone+1000", counts, &hits) == -EINVAL);
	CHECK(nopal_probe_at("0x10", counts, &hits) == -ENOENT);
	CHECK(nopal_unprobe(counts, &hits) == -ENOENT);
	CHECK(nopal_probe_return("tail", counts, &hits) == -ENOTSUP);
	CHECK(strstr(nopal_error(), "a jump may leave the function"));
	CHECK(nopal_probe_return("narrow", counts, &hits) == -ENOTSUP && narrow(0) == 0 && narrow(1) == 3);
	CHECK(strstr(nopal_error(), ": a jump leads into the bytes that a jump needs"));
	CHECK(nopal_probe_return("tail+0x3", counts, &hits) == -EINVAL);
	/* In some builds the first instruction is the marker. */
	if (nopal_probe_at("marked", counts, &hits) == 0)
		CHECK(nopal_unprobe(counts, &hits) == 0);
	else
		CHECK(strstr(nopal_error(), "marker") || strstr(nopal_error(), "inside"));
	CHECK(nopal_connect("here", NULL, (nopal_probe *)(void *)counts, &hits) == 0 && marked(3) == 3 && hits == 1);
	CHECK(nopal_disconnect("here", (nopal_probe *)(void *)counts, &hits) == 0);
}

static void returns(void)
{
	long result = 0, hits = 0;
	CHECK(nopal_probe_return("several", changes_result, &result) == 0);
	CHECK(nopal_probe_return("several", changes_result, &result) == -EEXIST);
	CHECK(several(0) == 42 && result == 7 && several(5) == 42 && result == 6);
	CHECK(tail(2) == 42 && result == 4);
	CHECK(nopal_probe_return("several", counts, &hits) == 0);
	CHECK(several(1) == 42 && result == 2 && hits == 1);
	CHECK(nopal_unprobe(changes_result, &result) == 0);
	CHECK(several(1) == 2 && several(0) == 7 && hits == 3);
	CHECK(nopal_unprobe(counts, &hits) == 0 && several(0) == 7 && hits == 3);
}

static void registers(void)
{
	struct nopal_registers seen = { 0 };
	CHECK(nopal_probe_at("with_room", looks, &seen) == 0);
	CHECK(with_room(5, 6) == 56 && seen.di == 5 && seen.si == 6 && seen.flags & 2);
	CHECK(seen.sp % 16 == 8 && seen.ip - (uint64_t)with_room <= 4);
	CHECK(nopal_unprobe(looks, &seen) == 0);
	CHECK(nopal_probe_at("with_room", changes, NULL) == 0);
	CHECK(with_room(5, 6) == 1053);
	CHECK(nopal_unprobe(changes, NULL) == 0 && with_room(5, 6) == 56);
}

/* ---- with threads ---- */

static volatile int stop;

static void *pass(void *argument)
{
	for (long i = 0; !stop; i++) {
		CHECK(with_room(i, 1) == i * 10 + 1);
		++*(long *)argument;
	}
	return NULL;
}

static void threads(int rounds)
{
	pthread_t threads[2];
	long passed[2] = { 0 }, hits[2] = { 0 }, stays = 0;
	CHECK(nopal_probe_at("mixed", counts, &stays) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, pass, &passed[i]) == 0);
	CHECK(nopal_probe_at("red_zone", counts, &stays) == -EBUSY);
	CHECK(strstr(nopal_error(), "while there are other threads"));
	/* The jump stays, and leads to no function. */
	long expected = cases(mixed), before = stays;
	CHECK(before > 0 && nopal_unprobe(counts, &stays) == 0 && cases(mixed) == expected && stays == before);
	CHECK(nopal_probe_at("mixed", counts, &stays) == 0 && cases(mixed) == expected && stays > before);
	CHECK(nopal_unprobe(counts, &stays) == 0);
	for (int round = 0; round < rounds; round++) {
		long had[2] = { hits[0], hits[1] };
		CHECK(nopal_probe_at("with_room", counts, &hits[0]) == 0);
		CHECK(nopal_probe_at("with_room", counts, &hits[1]) == 0);
		while (__atomic_load_n(&hits[1], __ATOMIC_RELAXED) < had[1] + 10)
			usleep(50);
		CHECK(nopal_unprobe(counts, &hits[0]) == 0);
		long now = hits[0];
		had[1] = hits[1];
		while (__atomic_load_n(&hits[1], __ATOMIC_RELAXED) < had[1] + 10)
			usleep(50);
		CHECK(hits[0] == now && nopal_unprobe(counts, &hits[1]) == 0);
		now = hits[1];
		had[0] = __atomic_load_n(&passed[0], __ATOMIC_RELAXED);
		while (__atomic_load_n(&passed[0], __ATOMIC_RELAXED) < had[0] + 10)
			usleep(50);
		CHECK(hits[1] == now);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int count, char **arguments)
{
	int rounds = count > 1 ? atoi(arguments[1]) : 50;
	refusals();
	everywhere("red_zone", (uint64_t)(red_zone_end - (char *)red_zone), zones, counts);
	everywhere("red_zone", (uint64_t)(red_zone_end - (char *)red_zone), zones, ordinary);
	everywhere("mixed", 80, mixed, counts);
	everywhere("mixed", 80, mixed, ordinary);
	returns();
	registers();
	threads(rounds);
	puts("done");
	return 0;
}
