/* A new program in place of the old one, by every way there is. The first argument is the way, the second the number of
 * programs (of CHAIN, in a chain). The last one executed is this program itself: `exec done N`. */
#define _GNU_SOURCE
#include "hard.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHAIN 10

extern char **environ;
static char *self = "/proc/self/exe";

KEPT static int work(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static int report(const char *word)
{
	int n = 0;
	for (int i = 0; i < 5; i++)
		n = work(n);
	dprintf(1, "executed %s %d\n", word, n);
	return 17;
}

static void expect_17(pid_t child)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 17);
}

KEPT static void *exec_here(void *word)
{
	execl(self, "exec", "done", word, NULL);
	CHECK(!"execl came back");
	return NULL;
}

KEPT static void *idle(void *unused)
{
	for (;;)
		pause();
	return unused;
}

KEPT static void spawn_once(int i)
{
	char number[16];
	snprintf(number, sizeof number, "%d", i);
	char *words[] = {"exec", "done", number, NULL};
	pid_t child;
	CHECK(posix_spawn(&child, self, NULL, NULL, words, environ) == 0);
	expect_17(child);
}

KEPT static void vfork_once(int i)
{
	char number[16];
	snprintf(number, sizeof number, "%d", i);
	volatile int changed_by_child = 0;
	pid_t child = vfork();
	if (child == 0) {
		changed_by_child = work(i);
		execl(self, "exec", "done", number, NULL);
		_exit(1);
	}
	CHECK(changed_by_child == i + 1);
	expect_17(child);
}

KEPT static void vfork_exit(int i)
{
	pid_t child = vfork();
	if (child == 0) {
		work(i);
		_exit(17);
	}
	expect_17(child);
}

KEPT static void fork_once(int i)
{
	char number[16];
	snprintf(number, sizeof number, "%d", i);
	pid_t child = fork();
	if (child == 0) {
		work(i);
		execl(self, "exec", "done", number, NULL);
		_exit(1);
	}
	expect_17(child);
}

static void shell_once(void)
{
	CHECK(system("exit 3") == 3 << 8);
	char line[64];
	FILE *pipe = popen("echo from a shell", "r");
	CHECK(pipe && fgets(line, sizeof line, pipe));
	CHECK(pclose(pipe) == 0 && strcmp(line, "from a shell\n") == 0);
}

static void counts(int works, int reports)
{
	printf("calls: %d work\ncalls: %d report\n", works, reports);
	fflush(stdout);
}

int main(int count, char **words)
{
	CHECK(count == 3);
	const char *way = words[1];
	int often = atoi(words[2]);
	char number[16];
	if (strcmp(way, "done") == 0)
		return report(words[2]);
	if (strcmp(way, "spawn") == 0) {
		for (int i = 0; i < often; i++)
			spawn_once(i);
		counts(5 * often, often);
	} else if (strcmp(way, "fork") == 0) {
		for (int i = 0; i < often; i++)
			fork_once(i);
		counts(6 * often, often);
	} else if (strcmp(way, "vfork") == 0) {
		for (int i = 0; i < often; i++) {
			vfork_once(i);
			vfork_exit(i);
		}
		counts(7 * often, often);
	} else if (strcmp(way, "chain") == 0) {
		work(often);
		if (often == 1)
			counts(CHAIN + 5, 1);
		snprintf(number, sizeof number, "%d", often - 1);
		execl(self, "exec", often > 1 ? "chain" : "done", number, NULL);
		CHECK(!"execl came back");
	} else if (strcmp(way, "fd") == 0) {
		counts(5, 1);
		int program = open(self, O_RDONLY | O_CLOEXEC);
		fexecve(program, (char *[]){"exec", "done", "fd", NULL}, environ);
		CHECK(!"fexecve came back");
	} else if (strcmp(way, "raw") == 0) {
		counts(5, 1);
		syscall(SYS_execve, self, (char *[]){"exec", "done", "raw", NULL}, environ);
		CHECK(!"execve came back");
	} else if (strcmp(way, "environment") == 0) {
		counts(5, 1);
		execle(self, "exec", "done", "environment", NULL, (char *[]){"ONLY=this", NULL});
		CHECK(!"execle came back");
	} else if (strcmp(way, "thread") == 0) {
		counts(5, 1);
		pthread_t threads[5];
		for (int i = 0; i < 4; i++)
			CHECK(pthread_create(&threads[i], NULL, idle, NULL) == 0);
		CHECK(pthread_create(&threads[4], NULL, exec_here, "thread") == 0);
		pthread_join(threads[4], NULL);
	} else if (strcmp(way, "fails") == 0) {
		counts(often, 0);
		for (int i = 0; i < often; i++) {
			CHECK(execl("/no/such/program", "program", NULL) == -1 && errno == ENOENT);
			CHECK(execl("/etc/passwd", "program", NULL) == -1 && errno == EACCES);
			CHECK(work(i) == i + 1);
		}
		pid_t child;
		CHECK(posix_spawn(&child, "/no/such", NULL, NULL, (char *[]){"no", NULL}, environ) == ENOENT);
		puts("still here");
	} else if (strcmp(way, "shell") == 0) {
		for (int i = 0; i < often; i++)
			shell_once();
		puts("from shells");
	} else {
		CHECK(!"a way that is known");
	}
	return 0;
}
