/* Sandboxes: "strict" allows read, write and exit only, and forbids reading the clock; "filter" kills on every system
 * call but those and a few, "threads" does the same for all threads at once, "fork" confines a child; "asked" only
 * probes the kernel. */
#define _GNU_SOURCE
#include "hard.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int running, go, sum;

KEPT static int before(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static int after(int n)
{
	EFFECT();
	return n + 1;
}

KEPT static int deep_after(int left) { return left ? RETURNED(deep_after(left - 1)) + 1 : 0; }

static void *waiter(void *unused)
{
	__atomic_add_fetch(&running, 1, __ATOMIC_SEQ_CST);
	while (!go)
		EFFECT();
	for (int i = 0; i < 100; i++)
		__atomic_add_fetch(&sum, after(i) - i, __ATOMIC_SEQ_CST);
	syscall(SYS_exit, 0);
	return unused;
}

#define ALLOW(number) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void filter(unsigned flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read),
		ALLOW(SYS_write),
		ALLOW(SYS_exit),
		ALLOW(SYS_exit_group),
		ALLOW(SYS_fork),
		ALLOW(SYS_wait4),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof code / sizeof code[0], code};
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (flags)
		CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0);
	else
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Probes the kernel as libseccomp does: none of the calls confines a thread. */
static void ask(void)
{
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) == -1 && errno == EINVAL);
	CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL) == -1 && errno == EFAULT);
}

static void say(const char *text) { CHECK(write(1, text, strlen(text)) == (ssize_t)strlen(text)); }

int main(int count, char **words)
{
	CHECK(count == 2);
	int value = 0;
	pthread_t threads[3];
	for (int i = 0; i < 100; i++)
		value = before(value);
	if (strcmp(words[1], "strict") == 0) {
		say("calls: 100 before\n");
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
	} else if (strcmp(words[1], "filter") == 0) {
		say("calls: 100 before\ncalls: 100 after\ncalls: 5001 deep_after\n");
		filter(0);
	} else if (strcmp(words[1], "fork") == 0) {
		say("calls: 100 before\ncalls: 200 after\ncalls: 10002 deep_after\n");
		filter(0);
		long child = syscall(SYS_fork);
		CHECK(child >= 0 && (!child || syscall(SYS_wait4, child, 0, 0, 0) == child));
	} else if (strcmp(words[1], "asked") == 0) {
		say("calls: 100 before\ncalls: 100 after\ncalls: 5001 deep_after\n");
		ask();
	} else if (strcmp(words[1], "raw") == 0) {
		say("calls: 100 before\ncalls: 100 after\ncalls: 5001 deep_after\n");
		filter(SECCOMP_FILTER_FLAG_LOG);
	} else {
		for (int i = 0; i < 3; i++)
			CHECK(pthread_create(&threads[i], NULL, waiter, NULL) == 0);
		while (running < 3)
			EFFECT();
		say("calls: 100 before\ncalls: 400 after\ncalls: 5001 deep_after\n");
		filter(SECCOMP_FILTER_FLAG_TSYNC);
		go = 1;
		while (sum < 300)
			EFFECT();
	}
	for (int i = 0; i < 100; i++)
		value = after(value);
	if (value == 200 && deep_after(5000) == 5000)
		say("in the sandbox\n");
	syscall(SYS_exit, 7);
}
