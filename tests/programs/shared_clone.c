/* Children that share their parent's memory, by clone with CLONE_VM and without a thread area, so that parent and child
 * have one thread control block. The parent waits for each, or with "beside" as an argument works beside it. */
#define _GNU_SOURCE
#include "hard.h"
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

// calls: 20000 work

#define STACK (256 << 10)

static long done;

KEPT static void work(void) { __atomic_add_fetch(&done, 1, __ATOMIC_RELAXED); }

KEPT static int child(void *unused)
{
	(void)unused;
	for (int i = 0; i < 1000; i++)
		work();
	return 7;
}

int main(int count, char **words)
{
	int beside = count > 1 && strcmp(words[1], "beside") == 0;
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(stack != MAP_FAILED);
	for (int round = 0; round < 10; round++) {
		int pid = clone(child, stack + STACK, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, NULL);
		CHECK(pid > 0);
		int status;
		if (!beside)
			CHECK(waitpid(pid, &status, 0) == pid);
		for (int i = 0; i < 1000; i++)
			work();
		if (beside)
			CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
	printf("%ld\n", done);
	return 0;
}
