/* Under RLIMIT_AS, memory that fits untraced fits traced, and too much memory fails in the same way. Runs itself again
 * under the limit, as a shell with `ulimit -v` does; "now" as an argument sets it on the running process instead. */
#include "hard.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define LIMIT (400l << 20)
#define CHUNK (16l << 20)

KEPT static void *obtain(long bytes)
{
	void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

KEPT static void *body(void *unused) { return unused; }

static void limit(void)
{
	struct rlimit space = {LIMIT, LIMIT};
	CHECK(setrlimit(RLIMIT_AS, &space) == 0);
}

int main(int count, char **words)
{
	CHECK(count == 2);
	if (strcmp(words[1], "exec") == 0) {
		limit();
		execl("/proc/self/exe", words[0], "limited", NULL);
		CHECK(!"execl came back");
	}
	if (strcmp(words[1], "now") == 0)
		limit();
	CHECK(obtain(LIMIT) == NULL && errno == ENOMEM);
	for (int i = 0; i < 8; i++)
		CHECK(obtain(CHUNK));
	for (int i = 0; i < 8; i++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, body, NULL) == 0);
		pthread_join(thread, NULL);
	}
	puts("within the limit");
	printf("calls: 9 obtain\ncalls: 8 body\n");
	return 0;
}
