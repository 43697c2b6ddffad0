/* Gives up root, in every thread, and runs on: the process must keep no privilege. Then enters namespaces. */
#define _GNU_SOURCE
#include "hard.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// calls: 150 work
// calls: 1 thread_body

static volatile int go;

KEPT static int work(int n)
{
	EFFECT();
	return n + 1;
}

static void fifty(void)
{
	for (int i = 0; i < 50; i++)
		CHECK(work(i) == i + 1);
}

KEPT static void *thread_body(void *unused)
{
	while (!go)
		usleep(1000);
	CHECK(geteuid() != 0 && geteuid() == getuid());
	fifty();
	return unused;
}

static void unshare_and_say(const char *name, int flag)
{
	pid_t child = fork();
	if (child == 0)
		_exit(unshare(flag) ? errno : 0);
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	printf("unshare %s: %s\n", name, strerror(WEXITSTATUS(status)));
}

int main(void)
{
	/* The user namespace comes first: a process with a second thread cannot have one. */
	unshare_and_say("user", CLONE_NEWUSER);
	unshare_and_say("mount", CLONE_NEWNS);
	unshare_and_say("user and pid", CLONE_NEWUSER | CLONE_NEWPID);
	unshare_and_say("files", CLONE_FILES | CLONE_FS);
	unshare_and_say("vm", CLONE_VM);
	unshare_and_say("thread", CLONE_THREAD);
	fifty();
	if (geteuid() == 0) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, thread_body, NULL) == 0);
		CHECK(setgid(65534) == 0 && setuid(65534) == 0);
		CHECK(setuid(0) == -1 && errno == EPERM);
		go = 1;
		pthread_join(thread, NULL);
	} else {
		go = 1;
		thread_body(NULL);
	}
	printf("dumpable %d\n", prctl(PR_GET_DUMPABLE));
	fifty();
	/* Root is given up, and new functions are still called for the first time. */
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	while (status && fgets(line, sizeof line, status))
		if (strncmp(line, "Uid:", 4) == 0 || strncmp(line, "CapEff:", 7) == 0 || strncmp(line, "Threads:", 8) == 0)
			fputs(line, stdout);
	return 0;
}
