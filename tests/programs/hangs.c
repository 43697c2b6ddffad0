/* Obeys lines, and tells how long calls have taken. `hang`: waits() begins in a thread, and never ends. `sleep`: some time
 * passes. `exit`: a thread ends amid early(). `jump`: a thread leaves left() by a jump, and does nothing more. */
#include "hard.h"
#include <pthread.h>
#include <setjmp.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SLEEP_MICROSECONDS = 400000 };

static int begun[2], never[2];
static jmp_buf place;
static long long hung;

static long long now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/* The kernel's calls themselves: no function that could be recorded. */
static void begin(void)
{
	syscall(SYS_write, begun[1], "", 1);
}

static void wait_for_ever(void)
{
	char byte;
	syscall(SYS_read, never[0], &byte, 1);
}

KEPT static void waits(void)
{
	begin();
	wait_for_ever();
	EFFECT();
}

KEPT static void early(void)
{
	syscall(SYS_exit, 0);
	EFFECT();
}

KEPT static void left(void)
{
	longjmp(place, 1);
}

static void *hang(void *unused)
{
	waits();
	return unused;
}

static void *end(void *unused)
{
	early();
	return unused;
}

static void *jump(void *unused)
{
	if (!setjmp(place))
		left();
	begin();
	wait_for_ever();
	return unused;
}

static void begin_thread(void *(*body)(void *))
{
	pthread_t thread;
	char byte;
	if (pthread_create(&thread, 0, body, 0))
		exit(1);
	if (body == end)
		pthread_join(thread, 0);
	else if (read(begun[0], &byte, 1) != 1)
		exit(1);
}

int main(void)
{
	char line[32];
	if (pipe(begun) || pipe(never))
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		long long before = now();
		if (line[0] == 's') {
			printf("waits had taken less than %lld\n", before - hung);
			usleep(SLEEP_MICROSECONDS);
			printf("waits has taken more than %lld\n", now() - before);
		} else if (line[0] == 'h') {
			hung = before;
			begin_thread(hang);
		} else if (line[0] == 'e') {
			begin_thread(end);
			printf("early has taken less than %lld\n", now() - before);
		} else {
			begin_thread(jump);
			printf("left has taken less than %lld\n", now() - before);
		}
		puts("done");
		fflush(stdout);
	}
	return 5;
}
