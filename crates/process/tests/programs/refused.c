// A process that cannot be traced, or only by some. "secret": not dumpable. "thread": has two threads, and prints the
// second's id. "new": in namespaces of its own, where possible.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *thread(void *argument) {
	printf("%ld\n", syscall(SYS_gettid));
	fflush(stdout);
	for (;;)
		pause();
	return 0;
}

int main(int argc, char **argv) {
	char byte;
	pthread_t id;
	if (!strcmp(argv[1], "secret"))
		prctl(PR_SET_DUMPABLE, 0);
	if (!strcmp(argv[1], "thread"))
		pthread_create(&id, 0, thread, 0);
	else
		puts("ready"), fflush(stdout);
	return read(0, &byte, 1) != 1;
}
