// The first thread ends, and a second one, once it sees that, ends the process with status 9.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *second(void *argument) {
	char path[64], line[1024];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
	for (;;) {
		FILE *file = fopen(path, "r");
		const char *state = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : 0;
		if (file)
			fclose(file);
		if (!state || state[2] == 'Z')
			_exit(9);
		usleep(1000);
	}
	return argument;
}

int main(void) {
	pthread_t thread;
	pthread_create(&thread, 0, second, 0);
	pthread_exit(0);
}
