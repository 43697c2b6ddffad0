/* Has a seccomp filter that allows everything; then loads its argument, a library, twice, and executes itself without
 * arguments. */
#include "hard.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

// calls: 1 begun
// calls: 0 executed

KEPT static int executed(void)
{
	EFFECT();
	return 17;
}

KEPT static void begun(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = { 1, &allow };
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

int main(int count, char **words)
{
	if (count == 1)
		return executed();
	begun();
	for (int i = 0; i < 2; i++) {
		void *library = dlopen(words[1], RTLD_NOW);
		CHECK(library && dlclose(library) == 0);
	}
	execl(words[0], words[0], NULL);
	CHECK(!"execl came back");
	return 1;
}
