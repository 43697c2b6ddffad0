/* Sends signals to its own process group: each comes once, and the program ends with its own status. */
#include "hard.h"
#include <signal.h>
#include <unistd.h>

// calls: 9 on_signal

enum { STATUS = 3 };

static volatile sig_atomic_t got;

KEPT static void on_signal(int signal)
{
	(void)signal;
	got++;
}

int main(void)
{
	const int signals[] = { SIGHUP,  SIGINT,    SIGQUIT, SIGTERM,      SIGUSR1,
				SIGUSR2, SIGALRM, SIGIO,   SIGRTMIN + 3 };
	for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
		struct sigaction action = { .sa_handler = on_signal };
		got = 0;
		CHECK(sigaction(signals[i], &action, NULL) == 0 && kill(0, signals[i]) == 0);
		/* A second signal would come within this time. */
		for (int naps = 0; naps < 20; naps++)
			usleep(5000);
		printf("%d of signal %d\n", got, signals[i]);
	}
	return STATUS;
}
