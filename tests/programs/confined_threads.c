/* Two threads, not the first, have seccomp filters that kill the process for most system calls. */
#include "hard.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef HOLD
enum { MICROSECONDS = 1500000 };
#else
enum { MICROSECONDS = 100000 };
#endif

static volatile int over;

#define ALLOW(number) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

KEPT static long fibonacci(long n)
{
	return n < 2 ? n : RETURNED(fibonacci(n - 1)) + fibonacci(n - 2);
}

static void *confined(void *nothing)
{
	/* What a thread's end needs. */
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_exit),
		ALLOW(SYS_futex),
		ALLOW(SYS_madvise),
		ALLOW(SYS_munmap),
		ALLOW(SYS_rt_sigprocmask),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog filter = { sizeof rules / sizeof *rules, rules };
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	while (!over) {
		CHECK(fibonacci(5) == 5);
		for (volatile int i = 0; i < 20000; i++) {
		}
	}
	return nothing;
}

int main(void)
{
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], 0, confined, 0) == 0);
	CHECK(usleep(MICROSECONDS) == 0);
	over = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], 0) == 0);
	puts("ended");
	return 0;
}
