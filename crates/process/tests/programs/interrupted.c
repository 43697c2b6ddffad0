// Writes more into a pipe than it takes, and nobody reads. A handler ends that.
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t handled;

static void handle(int signal) {
	handled++;
}

int main(void) {
	static char bytes[1 << 20];
	int ends[2];
	sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handle}, 0);
	if (pipe(ends))
		return 1;
	alarm(60);
	puts("ready");
	fflush(stdout);
	long written = write(ends[1], bytes, sizeof bytes);
	printf("wrote %ld of %ld, handled %d\n", written, (long)sizeof bytes, handled);
	fflush(stdout);
	return 0;
}
