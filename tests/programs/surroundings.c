/* Prints every part of its surroundings that a program can see: none of it may differ when it is traced. */
#define _GNU_SOURCE
#include "hard.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

extern char **environ;

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void lines_of(const char *path, const char *const *wanted)
{
	char line[4096];
	FILE *file = fopen(path, "r");
	CHECK(file);
	while (fgets(line, sizeof line, file))
		for (const char *const *word = wanted; *word; word++)
			if (strncmp(line, *word, strlen(*word)) == 0)
				fputs(line, stdout);
	fclose(file);
}

static void descriptors(void)
{
	for (int fd = 0; fd < 2000; fd++) {
		int flags = fcntl(fd, F_GETFD), status = fcntl(fd, F_GETFL);
		if (flags < 0)
			continue;
		char path[64], target[256] = "";
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t length = readlink(path, target, sizeof target - 1);
		target[length < 0 ? 0 : length] = 0;
		/* The number of a pipe differs in every run. */
		char *colon = strchr(target, ':');
		if (colon)
			*colon = 0;
		printf("descriptor %d flags %x status %x %s terminal %d\n", fd, (unsigned)flags, (unsigned)status, target,
		       isatty(fd));
	}
}

static void signals(void)
{
	sigset_t blocked;
	sigprocmask(SIG_BLOCK, NULL, &blocked);
	for (int number = 1; number < 65; number++) {
		struct sigaction action;
		if (sigaction(number, NULL, &action))
			continue;
		const char *handler = action.sa_handler == SIG_DFL ? "default" : action.sa_handler == SIG_IGN ? "ignored" : "handled";
		printf("signal %d %s%s\n", number, handler, sigismember(&blocked, number) ? " blocked" : "");
	}
}

static void limits(void)
{
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		struct rlimit limit;
		CHECK(getrlimit((__rlimit_resource_t)i, &limit) == 0);
		printf("limit %d %lx %lx\n", i, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
	}
}

int main(int count, char **words)
{
	for (int i = 0; i < count; i++)
		printf("word %s\n", words[i]);
	int variables = 0;
	while (environ[variables])
		variables++;
	char **sorted = calloc((size_t)variables + 1, sizeof *sorted);
	for (int i = 0; i < variables; i++)
		sorted[i] = environ[i];
	qsort(sorted, (size_t)variables, sizeof *sorted, compare);
	for (int i = 0; i < variables; i++)
		printf("variable %s\n", sorted[i]);
	printf("preload %s\n", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "none");
	printf("executed %s\n", (const char *)getauxval(AT_EXECFN));
	printf("secure %lu\n", getauxval(AT_SECURE));
	descriptors();
	signals();
	limits();
	lines_of("/proc/self/status", (const char *const[]){"Name:", "Umask:", "TracerPid:", "Uid:", "Gid:", "Groups:",
	         "Threads:", "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:", "CapInh:", "CapPrm:", "CapEff:",
	         "NoNewPrivs:", "Seccomp:", "Cpus_allowed:", NULL});
	lines_of("/proc/self/comm", (const char *const[]){"", NULL});
	char *directory = getcwd(NULL, 0);
	printf("directory %s\n", directory);
	printf("shares its parent's session %d\n", getsid(0) == getsid(getppid()));
	printf("nice %d scheduler %d\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0));
	printf("personality %x dumpable %d subreaper %d\n", (unsigned)personality(0xffffffff), prctl(PR_GET_DUMPABLE),
	       ({ int value = -1; prctl(PR_GET_CHILD_SUBREAPER, &value); value; }));
	printf("death signal %d timer slack %d\n", ({ int value = -1; prctl(PR_GET_PDEATHSIG, &value); value; }),
	       prctl(PR_GET_TIMERSLACK));
	CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
	DIR *tasks = opendir("/proc/self/task");
	int threads = 0;
	for (struct dirent *entry; (entry = readdir(tasks));)
		threads += entry->d_name[0] != '.';
	printf("threads %d\n", threads);
	closedir(tasks);
	fflush(stdout);
	/* The surroundings that it passes on follow. */
	return system("env | sort | grep -v '^_=' | sed 's/^/passed on /'; echo \"shell $#\"; ls /proc/self/fd | wc -l") ? 1 : 0;
}
