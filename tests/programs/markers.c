/* Passes markers in leaf functions, signal handlers, constructors, threads and functions that begin with one; prints
 * results computed from their values, so that a lost register or word of the red zone shows. */
#include <nopal.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum state { IDLE, BUSY = 4 };

__attribute__((constructor)) static void before_main(void)
{
	NOPAL_MARK(before_main, "pid=%d", 1);
}

static void after_exit(void)
{
	NOPAL_MARK(after_exit, "");
}

/* Keeps all its values in registers and the red zone. */
__attribute__((noinline)) static long leaf(long a, long b, long c, long d, long e, long f, double x, double y)
{
	long kept[12] = { a, b, c, d, e, f, a ^ b, c ^ d, e ^ f, a + b, c + d, e + f };
	NOPAL_MARK(leaf, "a=%ld b=%ld x=%g", a, b, x);
	return kept[a & 7] * 3 + kept[b & 7] * 5 + kept[c & 7] * 7 + (long)(x * y) + a * b + c * d + e * f;
}

__attribute__((noinline)) static int starts_with_one(int n)
{
	NOPAL_MARK(starts_with_one, "n=%d", n);
	return n + 1;
}

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
	NOPAL_MARK(on_signal, "number=%d", number);
	handled++;
}

static void *thread(void *argument)
{
	long sum = 0;
	for (int i = 0; i < 1000; i++) {
		NOPAL_MARK(thread, "i=%d of=%p", i, argument);
		sum += leaf(i, 2, 3, 4, 5, 6, 7, 8);
	}
	return (void *)sum;
}

static void texts(const char *text, const char *none)
{
	char *long_text = malloc(100000);
	memset(long_text, 'x', 99999);
	long_text[99999] = 0;
	unsigned char bytes[3] = { 0, 1, 255 };
	NOPAL_MARK(texts, "text=%s none=%s part=%s bytes=%p long=%s last=%d", text, none, NOPAL_BYTES(text, 2),
		   NOPAL_BYTES(bytes, sizeof bytes), long_text, 7);
	free(long_text);
}

static volatile int over;

/* Computes a value of a marker that is on. */
__attribute__((noinline)) static long slowly(long value)
{
	for (volatile int i = 0; i < 100; i++)
		value += i & 1 ? 1 : -1;
	return value;
}

static void *busy(void *argument)
{
	(void)argument;
	long sum = 0, expected = 0;
	for (long i = 0; !over; i++) {
		NOPAL_MARK(busy, "i=%ld slowly=%ld", i, slowly(i));
		NOPAL_MARK_GENERIC(tested, "i=%ld", i);
		sum += leaf(i % 100, 2, 3, 4, 5, 6, 7, 8) + starts_with_one((int)i);
		expected += leaf(i % 100, 2, 3, 4, 5, 6, 7, 8) + (int)i + 1;
	}
	return (void *)(sum - expected);
}

/* Passes markers until the input ends. */
static int pass_markers(void)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, busy, NULL);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	over = 1;
	int wrong = 0;
	for (int i = 0; i < 3; i++) {
		void *difference;
		pthread_join(threads[i], &difference);
		wrong += difference != NULL;
	}
	return wrong;
}

int main(int count, char **arguments)
{
	(void)arguments;
	if (count > 1)
		return pass_markers();
	atexit(after_exit);
	signal(SIGUSR1, on_signal);
	NOPAL_MARK(numbers, "%hhd i16=%hd u8=%hhu hex=%#x u64=%llu state=%d{idle,busy=4} f=%f", (signed char)-1,
		   (short)-2, (unsigned char)255, 0xdeadbeefu, ~0ull, BUSY, 1.5f);
	NOPAL_MARK_GENERIC(generic, "n=%d", 42);
	NOPAL_MARK(variable, "%hhd%% i16=%hd u8=%hhu size=%zu c=%c state=%d{idle,busy=4} f=%.2f text=%s bytes=%s p=%p",
			    (signed char)-1, (short)-2, (unsigned char)255, ~(size_t)0, 'c', BUSY, 1.5f, "text",
			    NOPAL_BYTES("bytes", 3), (void *)16);
	texts("a \"text\"", NULL);
	long sum = 0;
	for (int i = 0; i < 100; i++)
		sum += leaf(i, i + 1, i + 2, i + 3, i + 4, i + 5, i, 2.5) + starts_with_one(i);
	raise(SIGUSR1);
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, thread, NULL);
	for (int i = 0; i < 4; i++) {
		void *result;
		pthread_join(threads[i], &result);
		sum += (long)result;
	}
	printf("%ld %d\n", sum, (int)handled);
	return 3;
}
