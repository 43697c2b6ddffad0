/* After a line, on one processor, a thread of a real-time policy wakes a more urgent one and an ordinary one, as often
 * as the argument states, each while it waits. Prints their numbers first. */
#define _GNU_SOURCE
#include "hard.h"
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int rounds, lines[2][2];
/* The bytes that each thread has read. */
static int heard[2];

static void schedule(int policy, int priority)
{
	struct sched_param parameters = { .sched_priority = priority };
	CHECK(sched_setscheduler(0, policy, &parameters) == 0);
}

static void *listen_to(void *number)
{
	long own = (long)number;
	char byte;
	schedule(own ? SCHED_OTHER : SCHED_FIFO, own ? 0 : 20);
	printf("%s %ld\n", own ? "ordinary" : "urgent", (long)syscall(SYS_gettid));
	fflush(stdout);
	for (int round = 0; round < rounds; round++) {
		CHECK(read(lines[own][0], &byte, 1) == 1);
		__atomic_fetch_add(&heard[own], 1, __ATOMIC_RELEASE);
	}
	return number;
}

int main(int count, char **words)
{
	char line[16];
	cpu_set_t processor;
	pthread_t threads[2];
	rounds = count > 1 ? atoi(words[1]) : 1;
	CPU_ZERO(&processor);
	CPU_SET(0, &processor);
	CHECK(sched_setaffinity(0, sizeof processor, &processor) == 0);
	for (long own = 0; own < 2; own++) {
		CHECK(pipe(lines[own]) == 0);
		CHECK(pthread_create(&threads[own], NULL, listen_to, (void *)own) == 0);
	}
	CHECK(fgets(line, sizeof line, stdin) != NULL);
	schedule(SCHED_FIFO, 10);
	for (int round = 0; round < rounds; round++) {
		for (int own = 0; own < 2; own++) {
			CHECK(write(lines[own][1], "", 1) == 1);
			/* Both threads have their turns, and wait again. */
			do
				usleep(300);
			while (__atomic_load_n(&heard[own], __ATOMIC_ACQUIRE) <= round);
			usleep(300);
		}
	}
	for (int own = 0; own < 2; own++)
		CHECK(pthread_join(threads[own], NULL) == 0);
	return 0;
}
