/* It has the function of LeakSanitizer's, which has a child stop all threads. One thread looks at another all the time,
 * and for each line of the input main says how often in a row that was traced by someone. */
#define _GNU_SOURCE
#include "hard.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void __lsan_do_leak_check(void)
{
}

static atomic_int watched, most;

static void *wait_for_ever(void *unused)
{
	(void)unused;
	watched = (int)syscall(SYS_gettid);
	for (;;)
		pause();
	return NULL;
}

static void *watch(void *unused)
{
	(void)unused;
	char path[64], text[4096];
	snprintf(path, sizeof path, "/proc/self/task/%d/status", watched);
	int file = open(path, O_RDONLY);
	CHECK(file >= 0);
	for (int times = 0;;) {
		ssize_t length = pread(file, text, sizeof text - 1, 0);
		CHECK(length > 0);
		text[length] = '\0';
		times = strstr(text, "TracerPid:\t0\n") ? 0 : times + 1;
		if (times > most)
			most = times;
	}
	return NULL;
}

int main(void)
{
	pthread_t thread;
	char line[16];
	CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
	while (!watched)
		usleep(100);
	CHECK(pthread_create(&thread, NULL, watch, NULL) == 0);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		printf("%d times\n", atomic_exchange(&most, 0));
		fflush(stdout);
	}
	_Exit(0);
}
