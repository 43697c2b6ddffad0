/* Calls a function so often, or until SIGTERM if 0 times, in two threads. Then it tells whether its text and that of its
 * libraries is as before. With "protected", it tells whether it may write to a page
 * that is only read, by /proc/self/mem. */
#define _GNU_SOURCE
#include "hard.h"
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "../../include/nopal.h"

static volatile sig_atomic_t ends;

static void end(int signal)
{
	(void)signal;
	ends = 1;
}

KEPT static int turn(int i)
{
	NOPAL_MARK(turned, "i=%d", i);
	return i + 1;
}

static int add(struct dl_phdr_info *object, size_t size, void *into)
{
	unsigned long *sum = into;
	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
			continue;
		const unsigned char *text = (const unsigned char *)(object->dlpi_addr + part->p_vaddr);
		for (size_t at = 0; at < part->p_memsz; at++)
			*sum = *sum * 31 + text[at];
	}
	return 0;
}

static unsigned long sum_of_text(void)
{
	unsigned long sum = 0;
	dl_iterate_phdr(add, &sum);
	return sum;
}

static void *wait_for_end(void *nothing)
{
	while (!ends)
		usleep(1000);
	return nothing;
}

static int is_protected(void)
{
	static const char page[] = "p";
	int memory = open("/proc/self/mem", O_RDWR);
	CHECK(memory >= 0);
	return pwrite(memory, "p", 1, (off_t)page) != 1;
}

int main(int count, char **words)
{
	if (count == 2 && !strcmp(words[1], "protected")) {
		puts(is_protected() ? "protected" : "writable");
		return 0;
	}
	unsigned long before = sum_of_text();
	int times = count == 2 ? atoi(words[1]) : 1;
	pthread_t other;
	signal(SIGTERM, end);
	CHECK(pthread_create(&other, 0, wait_for_end, 0) == 0);
	for (int i = 0; times ? i < times : !ends; i++) {
		CHECK(turn(i) == i + 1);
		usleep(100);
	}
	ends = 1;
	CHECK(pthread_join(other, 0) == 0);
	printf("%d turns, text %s\n", times, sum_of_text() == before ? "as before" : "changed");
	return 3;
}
