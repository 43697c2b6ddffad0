// Waits in a loop for a word of its memory to change, as nopal's runtime waits for its tool, and then executes a program
// in the way that its argument says. Prints where the word is, and which thread waits.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static volatile int *word;
static const char *how, *program;

static void wait_and_execute(void) {
	char *arguments[] = {(char *)program, "-c", "exit 33", 0};
	char line[100];
	int size = sprintf(line, "%d %ld %p\n", getpid(), syscall(SYS_gettid), (void *)word);
	if (write(1, line, size) != size)
		_exit(3);
	while (!*word)
		;
	if (*word == 2)
		_exit(44);
	if (strstr(how, "at"))
		syscall(SYS_execveat, AT_FDCWD, program, arguments, environ, 0);
	else
		execve(program, arguments, environ);
}

static void *thread(void *argument) {
	wait_and_execute();
	printf("failed: %s\n", strerror(errno));
	exit(55);
}

int main(int argc, char **argv) {
	int status;
	how = argv[1], program = argv[2];
	word = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (strstr(how, "thread")) {
		pthread_t id;
		pthread_create(&id, 0, thread, 0);
		pause();
	}
	if (strstr(how, "main")) {
		wait_and_execute();
		printf("failed: %s\n", strerror(errno));
		return 55;
	}
	// As posix_spawn does it: the parent waits in the kernel until the child has executed, in the parent's memory.
	if (vfork() == 0) {
		wait_and_execute();
		_exit(66);
	}
	wait(&status);
	printf("child ended %d\n", WEXITSTATUS(status));
	return 0;
}
