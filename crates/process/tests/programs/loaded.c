// With a library made from this same file (-DLIBRARY): each says when its code first runs.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const char *text) {
	if (write(1, text, strlen(text)) < 0)
		_exit(1);
}

#ifdef LIBRARY
int library_value(void) { return 5; }
__attribute__((constructor)) static void begin(void) { say("library constructor\n"); }
#else
int library_value(void);
__attribute__((constructor)) static void begin(void) { say("constructor\n"); }
int main(void) {
	unsigned long mask = 0;
	struct sigaction action;
	say("main\n");
	syscall(SYS_rt_sigprocmask, 0, 0, &mask, 8);
	sigaction(SIGTRAP, 0, &action);
	char text[100];
	sprintf(text, "trap %s, %s\n", action.sa_handler == SIG_IGN ? "ignored" : "default", mask & 1ul << (SIGTRAP - 1) ? "blocked" : "free");
	say(text);
	return library_value();
}
#endif
