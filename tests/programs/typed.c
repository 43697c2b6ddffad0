/* Functions with parameters and results of all kinds, each of which prints its call as nopal must show it. Values in
 * vector registers or in memory are printed as "…". */
#include <complex.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define KEPT __attribute__((noinline))

enum colour { RED, GREEN = 7, BLUE = -3 };
enum access { READ = 1, WRITE = 2, APPEND = 4, TRUNCATE = 8 };
typedef uint16_t port;
struct pair {
	int a, b;
};
struct longs {
	long a, b;
};
struct mixed {
	long a;
	double b;
};
struct large {
	long a, b, c;
};
struct __attribute__((packed)) packed {
	char a;
	long b;
};
struct bits {
	unsigned a : 3, b : 7;
	unsigned long c : 40;
};
struct empty {};
union either {
	int whole;
	char parts[4];
};
struct floats {
	float a, b;
};

KEPT int narrow(bool yes, char letter, signed char tiny, unsigned char byte, short small, port number)
{
	printf("narrow(yes=%s, letter='%c', tiny=%d, byte=%d, small=%d, number=%d) = %d\n", yes ? "true" : "false",
	       letter, tiny, byte, small, number, -small);
	return -small;
}
KEPT unsigned wide(int number, unsigned other, long far, unsigned long size, int64_t last)
{
	printf("wide(number=%d, other=%u, far=%ld, size=%lu, last=%ld) = %u\n", number, other, far, size, last, other + 1);
	return other + 1;
}
KEPT enum colour named(enum colour colour, enum access access, enum access unknown)
{
	printf("named(colour=%s, access=WRITE|TRUNCATE, unknown=%d) = RED\n",
	       colour == GREEN ? "GREEN" : colour == BLUE ? "BLUE" : "RED", (int)unknown);
	return access == (WRITE | TRUNCATE) ? RED : GREEN;
}
KEPT const char *pointed(const char *text, const void *any, int (*function)(void), int array[4])
{
	printf("pointed(text=\"%s\", any=%p, function=%p, array=%p) = \"%s\"\n", text, any, (void *)function,
	       (void *)array, text + 1);
	return text + 1;
}
KEPT int spelled(const char *constant, char *written, const char *data, const char *null)
{
	printf("spelled(constant=\"%.64s\"…, written=%p, data=%p, null=%p) = 1\n", constant, (void *)written, (void *)data,
	       (void *)null);
	return 1;
}
KEPT double floating(int before, float single, double whole, long double extended, int behind)
{
	printf("floating(before=%d, single=…, whole=…, extended=…, behind=%d) = …\n", before, behind);
	return single + whole + (double)extended;
}
KEPT bool structures(struct pair pair, struct longs longs, struct large large, struct mixed mixed, int behind)
{
	printf("structures(pair={0x%lx}, longs={0x%lx, 0x%lx}, large=…, mixed=…, behind=%d) = true\n",
	       (unsigned long)(unsigned)pair.a | (unsigned long)pair.b << 32, longs.a, longs.b, behind);
	return large.a + mixed.a + (long)mixed.b != 0;
}
KEPT int crowded(struct longs first, struct longs second, int fifth, struct longs third, int sixth, int seventh)
{
	printf("crowded(first={0x%lx, 0x%lx}, second={0x%lx, 0x%lx}, fifth=%d, third=…, sixth=%d, seventh=…) = %d\n",
	       first.a, first.b, second.a, second.b, fifth, sixth, seventh);
	return seventh + 0 * (int)third.a;
}
KEPT int many(int a, int b, int c, int d, int e, int f, int g, int h)
{
	printf("many(a=%d, b=%d, c=%d, d=%d, e=%d, f=%d, g=…, h=…) = %d\n", a, b, c, d, e, f, g + h);
	return g + h;
}
KEPT struct large returned(int after)
{
	printf("returned(after=%d) = …\n", after);
	return (struct large){ after, 2, 3 };
}
KEPT struct longs two(int after)
{
	printf("two(after=%d) = …\n", after);
	return (struct longs){ after, 2 };
}
KEPT struct pair one(int first)
{
	printf("one(first=%d) = {0x%lx}\n", first, (unsigned long)first | 9ul << 32);
	return (struct pair){ first, 9 };
}
KEPT void odd(struct packed packed, struct bits bits, struct empty empty, union either either, struct floats floats, int last)
{
	(void)empty;
	unsigned long word;
	memcpy(&word, &bits, sizeof word);
	printf("odd(packed=…, bits={0x%lx}, empty={}, either={0x%x}, floats=…, last=%d)\n", word, (unsigned)either.whole,
	       last);
	if (packed.b + floats.a > 1e9)
		printf("\n");
}
KEPT __int128 huge(int first, __int128 second, long third)
{
	printf("huge(first=%d, second={0x%lx, 0x%lx}, third=%ld) = …\n", first, (long)second, (long)(second >> 64), third);
	return second + third;
}
KEPT long double complex complexes(float complex a, double complex b, long double complex c, int last)
{
	printf("complexes(a=…, b=…, c=…, last=%d) = …\n", last);
	return a + b + c;
}
KEPT int variadic(const char *format, int count, ...)
{
	va_list rest;
	va_start(rest, count);
	int sum = 0;
	for (int index = 0; index < count; index++)
		sum += va_arg(rest, int);
	va_end(rest);
	printf("variadic(format=\"%s\", count=%d, ...) = %d\n", format, count, sum);
	return sum;
}
KEPT void none(void)
{
	printf("none()\n");
}
KEPT int old(number, letter)
int number;
char letter;
{
	printf("old(number=%d, letter='%c') = %d\n", number, letter, number);
	return number;
}
/* The compiler may change the parameters of these. */
KEPT static int local(int used, int unused, int constant)
{
	(void)unused;
	printf("local(used=%d, unused=17, constant=18) = %d\n", used, used + constant);
	return used + constant;
}
KEPT static int always(const struct large *large, int depth)
{
	printf("always(large=%p, depth=%d) = 1\n", (void *)large, depth);
	return large->b > 1000 ? 2 : 1;
}
KEPT static int exchanged(int a, int b)
{
	int old = a;
	a = b;
	b = old;
	printf("exchanged(a=%d, b=%d) = %d\n", b, a, a - b);
	return a - b;
}
KEPT int addressed(int number, int *out)
{
	printf("addressed(number=%d, out=%p) = %d\n", number, (void *)out, number);
	int *volatile kept = &number;
	return *kept;
}

static int callback(void)
{
	return 0;
}

int main(int count, char **words)
{
	/* The upper half of a register is not part of an int. */
	unsigned (*volatile dirty)(long, long, long, long, long) = (unsigned (*)(long, long, long, long, long))(void *)wide;
	int array[4] = { count };
	struct large large = { count, 2, 3 };
	int (*volatile change)(int, int) = exchanged;
	(void)words;
	narrow(true, 'x', -3, 250, -1234, 65535);
	narrow(false, '~', 127, 0, 32767, 80);
	wide(-5, 4294967295u, -1l * (1l << 40), ~0ul, INT64_MIN);
	dirty(0x1234567800000007, 0x7fffffff00000008, 1, 2, 3);
	named(GREEN, WRITE | TRUNCATE, (enum access)16);
	named(BLUE, WRITE | TRUNCATE, (enum access)64);
	pointed("text", NULL, callback, array);
	static char data[] = "data";
	char written[] = "written";
	spelled("a_text_that_is_longer_than_what_readers_show_of_it_which_is_64_bytes", written, data, NULL);
	floating(1, 2.5f, 3.5, 4.5L, 5);
	structures((struct pair){ -1, 2 }, (struct longs){ 3, 4 }, large, (struct mixed){ 5, 6 }, 7);
	crowded((struct longs){ 1, 2 }, (struct longs){ 3, 4 }, 5, (struct longs){ 6, 7 }, 8, 9);
	many(1, -2, 3, -4, 5, -6, 7, -8);
	large = returned(count + 10);
	two(11);
	one(12);
	odd((struct packed){ 1, 2 }, (struct bits){ 3, 63, 5 }, (struct empty){}, (union either){ 77 },
	    (struct floats){ 1, 2 }, 13);
	huge(1, (__int128)5 << 64 | 6, 7);
	complexes(1, 2, 3, 14);
	variadic("%d", 3, 4, 5, 6);
	none();
	old(15, 'o');
	local(count + 16, 17, 18);
	local(count + 19, 17, 18);
	always(&large, count + 21);
	change(22, 23);
	addressed(24, array);
	return 0;
}
