/* Exceptions thrown out of signal handlers (-fnon-call-exceptions), through frames that clean up. */
#include "hard.h"
#include <signal.h>
#include <stdexcept>
#include <ucontext.h>

// calls: 200 fault
// calls: 200 through
// calls: 200 on_fault

static long cleaned;

struct Cleaned {
	~Cleaned() { cleaned++; }
};

extern "C" KEPT void on_fault(int signal, siginfo_t *, void *)
{
	throw std::runtime_error(signal == SIGSEGV ? "segmentation" : "arithmetic");
}

extern "C" KEPT int fault(volatile int *address, int divisor)
{
	Cleaned here;
	return *address / divisor;
}

extern "C" KEPT int through(volatile int *address, int divisor)
{
	Cleaned here;
	int result = fault(address, divisor);
	EFFECT();
	return result;
}

int main()
{
	struct sigaction action = {};
	action.sa_sigaction = on_fault;
	action.sa_flags = SA_SIGINFO | SA_NODEFER;
	sigaction(SIGSEGV, &action, nullptr);
	sigaction(SIGFPE, &action, nullptr);
	int number = 7, caught = 0;
	for (int i = 0; i < 200; i++) {
		try {
			through(i % 2 ? &number : nullptr, i % 2 ? 0 : 1);
		} catch (const std::runtime_error &error) {
			caught += error.what()[0] == (i % 2 ? 'a' : 's');
		}
	}
	printf("caught %d, cleaned up %ld\n", caught, cleaned);
	return caught == 200 && cleaned == 400 ? 0 : 1;
}
