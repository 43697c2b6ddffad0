/* accompanied early|late SIGN COMMAND...: runs a command beside itself that inspects it, from before anything else
 * until the program's end (early), or from the midst of its work until the command ends (late). In the command, PROCESS
 * stands for this process. A file named as HOLD with .held appended shows that an early command is at work. SIGN shows
 * the program the same: "traced", or a file that the command makes. */
#include <sys/types.h>

static void begin(int is_early);
static __attribute__((constructor(101))) void begin_early(void) { begin(1); }

#include "hard.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEAST_CALLS 200000

static pid_t companion;
static char **words;
static long calls;

KEPT static void work(void)
{
	calls++;
	EFFECT();
}

static int is_traced(void)
{
	static char text[4096];
	FILE *status = fopen("/proc/self/status", "r");
	size_t length = fread(text, 1, sizeof text - 1, status);
	fclose(status);
	text[length] = 0;
	return atoi(strstr(text, "TracerPid:") + strlen("TracerPid:")) != 0;
}

static int is_there(const char *sign) { return strcmp(sign, "traced") == 0 ? is_traced() : access(sign, F_OK) == 0; }

static int has_ended(void)
{
	siginfo_t information = {0};
	CHECK(waitid(P_PID, companion, &information, WEXITED | WNOHANG | WNOWAIT) == 0);
	return information.si_pid != 0;
}

static void read_words(void)
{
	static char text[8192], *all[64];
	int file = open("/proc/self/cmdline", O_RDONLY);
	ssize_t length = read(file, text, sizeof text - 1);
	close(file);
	int count = 0;
	for (char *at = text; at < text + length && count < 63; at += strlen(at) + 1)
		all[count++] = at;
	CHECK(count > 3);
	words = all + 1;
}

static void begin(int is_early)
{
	if (!words)
		read_words();
	if ((strcmp(words[0], "early") == 0) != is_early)
		return;
	/* A file may be left from an earlier run. */
	unlink(words[1]);
	static char process[16];
	snprintf(process, sizeof process, "%d", getpid());
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	companion = fork();
	if (companion == 0) {
		for (char **word = words; *word; word++)
			if (strcmp(*word, "PROCESS") == 0)
				*word = process;
		int nowhere = open("/dev/null", O_RDWR);
		for (int i = 0; i < 3; i++)
			dup2(nowhere, i);
		unsetenv("HOLD");
		execvp(words[2], words + 2);
		_exit(127);
	}
	while (!is_there(words[1]) && !has_ended())
		usleep(1000);
	const char *hold = getenv("HOLD");
	static char file[4096];
	if (hold && is_early) {
		snprintf(file, sizeof file, "%s.held", hold);
		close(open(file, O_CREAT | O_WRONLY, 0600));
	}
}

int main(void)
{
	begin(0);
	int is_late = strcmp(words[0], "late") == 0;
	while (calls < LEAST_CALLS || (is_late && !has_ended()))
		work();
	unlink(words[1]);
	printf("calls: %ld work\n", calls);
	return 0;
}
