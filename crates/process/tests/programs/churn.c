// Threads that come and go. "orphan": the first thread ends before the others; with another argument, one of these ends the
// process with status 7 when it has read the end of input. "execute": a thread that is not the first
// executes the program anew, over and over.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char **arguments;

static void *shortly(void *argument) {
	return 0;
}

static void *create(void *argument) {
	for (;;) {
		pthread_t thread;
		if (pthread_create(&thread, 0, shortly, 0) == 0)
			pthread_join(thread, 0);
	}
	return 0;
}

static void *end(void *argument) {
	while (getchar() != EOF)
		;
	_exit(7);
}

static void *execute(void *argument) {
	usleep(500);
	execv("/proc/self/exe", arguments);
	return 0;
}

int main(int argc, char **argv) {
	pthread_t thread;
	arguments = argv;
	for (int i = 0; i < 4; i++)
		pthread_create(&thread, 0, create, 0);
	puts("ready");
	fflush(stdout);
	if (!strcmp(argv[1], "execute"))
		pthread_create(&thread, 0, execute, 0);
	if (argc > 2)
		pthread_create(&thread, 0, end, 0);
	if (!strcmp(argv[1], "orphan"))
		pthread_exit(0);
	create(0);
}
