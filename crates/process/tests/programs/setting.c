// Changes the settings that its words name, and executes the rest of its arguments: setting WORDS PROGRAM ARGUMENTS…
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
	if (strstr(argv[1], "ignore")) {
		int ignored[] = {SIGPIPE, SIGINT, SIGCHLD, SIGTRAP, SIGUSR2, SIGWINCH, SIGSEGV, SIGBUS, SIGRTMIN + 3};
		for (unsigned i = 0; i < sizeof ignored / sizeof *ignored; i++)
			signal(ignored[i], SIG_IGN);
	}
	if (strstr(argv[1], "block")) {
		unsigned long blocked = ~0ul;
		syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, 0, 8);
	}
	if (strstr(argv[1], "files")) {
		fcntl(open("/dev/null", O_RDONLY), F_DUPFD, 9);
		fcntl(open("/dev/zero", O_RDWR), F_DUPFD, 100);
	}
	for (int fd = 0; fd < 3; fd++)
		if (strchr(argv[1], '0' + fd))
			close(fd);
	if (strstr(argv[1], "limits")) {
		struct rlimit limit = {777, 999};
		setrlimit(RLIMIT_NOFILE, &limit);
		limit = (struct rlimit){64 << 20, 64 << 20};
		setrlimit(RLIMIT_CORE, &limit);
		umask(0137);
		nice(3);
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	}
	if (strstr(argv[1], "environment")) {
		static char *strange[] = {"B=2", "no equals sign", "A=1", "A=again", "=nameless", "", "PATH=/bin:/usr/bin", 0};
		environ = strange;
	}
	execv(argv[2], argv + 2);
	return 127;
}
