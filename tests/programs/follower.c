/* Runs a program, traces it and all its descendants and their threads, and ends with its status when all have ended. */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
	int status, process, first, code = 3;

	if (count < 2)
		return 2;
	first = fork();
	if (first == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		execvp(words[1], words + 1);
		_exit(127);
	}
	waitpid(first, &status, __WALL);
	ptrace(PTRACE_SETOPTIONS, first, 0,
	       PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
	ptrace(PTRACE_CONT, first, 0, 0);
	while ((process = waitpid(-1, &status, __WALL)) > 0) {
		if (process == first && WIFEXITED(status))
			code = WEXITSTATUS(status);
		if (WIFSTOPPED(status)) {
			/* Stops for new threads and for events are not signals for them. */
			int signal = WSTOPSIG(status);
			int own = status >> 16 || signal == SIGSTOP || signal == SIGTRAP;

			ptrace(PTRACE_CONT, process, 0, own ? 0 : signal);
		}
	}
	return code;
}
