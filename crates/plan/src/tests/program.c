/* Functions of many shapes; `run` uses them all. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long u64;
typedef u64 (*operation)(u64, u64);

static u64 counter = 3;
static const char *const names[] = { "zero", "one", "two", "three", "four", "five", "six" };

__attribute__((noinline)) u64 fibonacci(u64 n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__attribute__((noinline)) u64 add(u64 a, u64 b) { return a + b; }
__attribute__((noinline)) u64 subtract(u64 a, u64 b) { return a - b; }
__attribute__((noinline)) u64 mix(u64 a, u64 b) { return (a ^ b) * 0x9e3779b97f4a7c15ul; }
__attribute__((noinline)) void nothing(void) { }
__attribute__((noinline)) u64 global(void) { return counter++; }
__attribute__((noinline)) u64 is_zero(u64 a) { return a == 0; }
__attribute__((noinline)) u64 tail(u64 a) { return mix(a, a >> 3); }
__attribute__((noinline)) u64 indirect(operation f, u64 a, u64 b) { return f(a, b) + 1; }
__attribute__((noinline)) u64 indirect_tail(operation f, u64 a, u64 b) { return f(b, a); }
__attribute__((noinline)) double average(double a, double b) { return (a + b) / 2; }

__attribute__((noinline)) u64 choose(u64 a)
{
	switch (a % 9) {
	case 0: return counter;
	case 1: return fibonacci(3);
	case 2: return a * 3;
	case 3: return a << 2;
	case 4: return mix(a, 1);
	case 5: return ~a;
	case 6: return a / 3;
	default: return 17;
	}
}

__attribute__((noinline)) u64 sum(int count, ...)
{
	va_list list;
	u64 total = 0;
	va_start(list, count);
	while (count-- > 0)
		total += va_arg(list, u64);
	va_end(list);
	return total;
}

__attribute__((noinline)) u64 many(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h)
{
	return a - b + c * d - e + f * g - h;
}

__attribute__((noinline)) u64 text(const char *string)
{
	char copy[32];
	u64 hash = 5381;
	strncpy(copy, string, sizeof copy - 1);
	copy[sizeof copy - 1] = 0;
	for (char *c = copy; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	return hash;
}

static int compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;
	return x < y ? -1 : x > y;
}

__attribute__((noinline)) u64 sorted(u64 seed)
{
	u64 values[64], result = 0;
	for (int i = 0; i < 64; i++)
		values[i] = seed = mix(seed, i);
	qsort(values, 64, sizeof *values, compare);
	for (int i = 0; i < 64; i++)
		result = result * 31 + values[i];
	return result;
}

struct big { u64 words[6]; };
__attribute__((noinline)) struct big make_big(u64 a)
{
	struct big big = { { a, a + 1, a * 2, ~a, a >> 1, 9 } };
	return big;
}
__attribute__((noinline)) u64 use_big(struct big big) { return big.words[1] ^ big.words[3] ^ big.words[5]; }

u64 run(u64 seed)
{
	static const operation operations[] = { add, subtract, mix };
	char line[64];
	u64 result = seed;
	counter = 3;
	for (u64 i = 0; i < 40; i++) {
		nothing();
		result = mix(result, choose(seed + i));
		result += indirect(operations[i % 3], result, i);
		result ^= indirect_tail(operations[(i + 1) % 3], result, i);
		result += tail(result) + is_zero(i) + global();
		result += text(names[i % 7]);
		result += sum(4, i, seed, result, 7ul);
		result += many(1, 2, i, 4, seed, 6, 7, result);
		result += use_big(make_big(result));
		result += (u64)(average(i, 2.5) * 100);
	}
	snprintf(line, sizeof line, "%lx %s %.2f", result, names[seed % 7], average(seed % 100, 1));
	return result + fibonacci(15) + sorted(seed) + text(line);
}
