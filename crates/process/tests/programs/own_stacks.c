/* Threads on parts of one block of memory, as of a program that has its own stacks, and the first one. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 1 << 18, THREADS = 3 };

static void *work(void *unused)
{
	for (;;)
		usleep(1000);
	return unused;
}

int main(void)
{
	char *stacks = mmap(0, SIZE * THREADS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;
	pthread_attr_t own;
	pthread_attr_init(&own);
	for (int i = 0; i < THREADS; i++)
		if (stacks == MAP_FAILED || pthread_attr_setstack(&own, stacks + i * SIZE, SIZE) ||
		    pthread_create(&thread, &own, work, 0))
			return 1;
	puts("ready");
	fflush(stdout);
	work(0);
	return 0;
}
