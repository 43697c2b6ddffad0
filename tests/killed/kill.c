// Preloaded into nopal: ends it by SIGKILL at one of its ptrace requests or writes to other processes' memory. KILL_AT:
// the number of that operation, from 1 on. KILL_WHO: tool, both (with the guardian), or guardian: then the tool dies at
// KILL_TOOL_AT, and the guardian at its own KILL_AT. KILL_AFTER: after it, not before. KILL_COUNT: a file that gets a
// byte for each operation of the tool. KILL_INTERRUPT_AT: the operation before which the tool gets SIGINT.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long passed;
static long tool_at, guardian_at, interrupt_at;
static int both, after, is_guardian, count = -1;
static pid_t tool;

static long number(const char *name) {
	const char *text = getenv(name);
	return text ? atol(text) : 0;
}

__attribute__((constructor)) static void begin(void) {
	const char *who = getenv("KILL_WHO"), *path = getenv("KILL_COUNT");
	if (who && !strcmp(who, "guardian"))
		tool_at = number("KILL_TOOL_AT"), guardian_at = number("KILL_AT");
	else
		tool_at = number("KILL_AT");
	interrupt_at = number("KILL_INTERRUPT_AT");
	both = who && !strcmp(who, "both");
	after = getenv("KILL_AFTER") != 0;
	tool = getpid();
	if (path)
		count = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	// The program starts without these variables.
	unsetenv("LD_PRELOAD"), unsetenv("KILL_AT"), unsetenv("KILL_WHO"), unsetenv("KILL_AFTER");
	unsetenv("KILL_TOOL_AT"), unsetenv("KILL_COUNT"), unsetenv("KILL_INTERRUPT_AT");
}

// The guardian is the child that still runs nopal, and not the program to be.
static void kill_guardian(pid_t program) {
	char path[100], list[4000] = "", own[4000] = "", its[4000] = "";
	sprintf(path, "/proc/%d/task/%d/children", tool, tool);
	FILE *file = fopen(path, "re");
	if (!file)
		return;
	if (!fgets(list, sizeof list, file))
		list[0] = 0;
	fclose(file);
	readlink("/proc/self/exe", own, sizeof own - 1);
	for (char *at = strtok(list, " "); at; at = strtok(0, " ")) {
		memset(its, 0, sizeof its);
		sprintf(path, "/proc/%s/exe", at);
		readlink(path, its, sizeof its - 1);
		sprintf(path, "/proc/%s/comm", at);
		char name[100] = "";
		file = fopen(path, "re");
		if (file && fgets(name, sizeof name, file) && atoi(at) != program && !strcmp(own, its) &&
		    !strncmp(name, "nopal-guard", 11))
			kill(atoi(at), SIGKILL);
		if (file)
			fclose(file);
	}
}

static void die_at(long at, pid_t program) {
	is_guardian = getpid() != tool;
	if (at == interrupt_at && !is_guardian)
		kill(tool, SIGINT);
	long mine = is_guardian ? guardian_at : tool_at;
	if (at != mine)
		return;
	if (both && !is_guardian)
		kill_guardian(program);
	syscall(SYS_kill, getpid(), SIGKILL);
	for (;;)
		pause();
}

static long pass(void) {
	static atomic_int forked;
	if (getpid() != tool && !atomic_exchange(&forked, 1))
		passed = 0;
	else if (count >= 0 && getpid() == tool && write(count, ".", 1) != 1)
		abort();
	return ++passed;
}

long ptrace(int request, ...) {
	static long (*real)(int, ...);
	va_list rest;
	va_start(rest, request);
	pid_t thread = va_arg(rest, pid_t);
	void *address = va_arg(rest, void *), *data = va_arg(rest, void *);
	va_end(rest);
	if (!real)
		real = dlsym(RTLD_NEXT, "ptrace");
	long at = pass();
	if (!after)
		die_at(at, thread);
	long result = real(request, thread, address, data);
	int error = errno;
	if (after)
		die_at(at, thread);
	errno = error;
	return result;
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off_t offset) {
	char path[50], name[100] = "";
	sprintf(path, "/proc/self/fd/%d", file);
	readlink(path, name, sizeof name - 1);
	int is_memory = strstr(name, "/mem") != 0;
	long at = is_memory ? pass() : 0;
	if (is_memory && !after)
		die_at(at, 0);
	ssize_t result = syscall(SYS_pwrite64, file, bytes, length, offset);
	int error = errno;
	if (is_memory && after)
		die_at(at, 0);
	errno = error;
	return result;
}
