// Waits amid a transfer by a socket until the other end is closed, when it is told so; `send` or `recv` says which.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int ends[2];

static void *closer(void *none) {
	char told;
	if (read(0, &told, 1) == 1)
		close(ends[1]);
	return 0;
}

int main(int count, char **words) {
	static char bytes[1 << 20];
	int receives = count > 1 && strcmp(words[1], "send");
	pthread_t thread;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return 1;
	// Some of what it waits for; and something that the other end has not read, so that its end is a reset.
	if (receives && (write(ends[1], bytes, 1000) != 1000 || write(ends[0], bytes, 1) != 1))
		return 2;
	pthread_create(&thread, 0, closer, 0);
	puts("ready");
	fflush(stdout);
	long moved = receives ? recv(ends[0], bytes, sizeof bytes, MSG_WAITALL) : send(ends[0], bytes, sizeof bytes, 0);
	printf("%ld, %s\n", moved, moved < 0 ? strerror(errno) : "no error");
	fflush(stdout);
	return 0;
}
