/* Closes every descriptor, in several ways, and reuses them. */
#define _GNU_SOURCE
#include "hard.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

// calls: 40 work
// calls: 10004 leaf

KEPT static int leaf(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static void work(void)
{
	int first = open("/dev/null", O_RDWR), second = open("/dev/null", O_RDWR);
	CHECK(first == 3 && second == 4);
	CHECK(close(second) == 0 && close(first) == 0);
}

int main(void)
{
	for (int i = 0; i < 10; i++)
		work();
	for (int fd = 3; fd < 20000; fd++)
		CHECK(close(fd) == -1 && errno == EBADF);
	for (int i = 0; i < 10; i++)
		work();
	CHECK(syscall(SYS_close_range, 3u, ~0u, 0u) == 0);
	for (int i = 0; i < 10; i++)
		work();
	CHECK(dup2(1, 700) == 700);
	closefrom(3);
	for (int i = 0; i < 10; i++)
		work();
	/* Recording goes on with no descriptor at all; then the old one is back. */
	int output = dup(1);
	CHECK(fcntl(output, F_DUPFD, 500) == 500);
	close(output);
	close(0);
	close(1);
	close(2);
	for (int i = 0; i < 10000; i++)
		leaf(i);
	struct rlimit none = {0, 0};
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	leaf(1);
	CHECK(open("/dev/null", O_RDONLY) == -1 && errno == EMFILE);
	leaf(2);
	leaf(3);
	leaf(4);
	static const char text[] = "closed\n";
	CHECK(write(500, text, sizeof text - 1) == sizeof text - 1);
	_exit(4);
}
