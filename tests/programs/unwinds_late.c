/* A thread asks for a backtrace, and waits in its callback until a line comes. The backtrace must have all its frames
 * then. Each line is answered; at the end of the input, the program ends with 5. */
#include "hard.h"
#include <pthread.h>
#include <semaphore.h>
#include <unwind.h>

enum { LEVELS = 10, WAITS_AT = 4 };

static sem_t waits;
static sem_t goes_on;

KEPT static int nested(int levels);

struct walk {
	int frames;
	int nested;
};

KEPT static _Unwind_Reason_Code look(struct _Unwind_Context *context, void *data)
{
	struct walk *walk = data;
	walk->nested += _Unwind_GetRegionStart(context) == (_Unwind_Ptr)nested;
	if (++walk->frames == WAITS_AT) {
		sem_post(&waits);
		while (sem_wait(&goes_on) != 0) {
		}
	}
	return _URC_NO_REASON;
}

KEPT static int walk(void)
{
	struct walk walk = { 0 };
	_Unwind_Backtrace(look, &walk);
	return walk.nested;
}

KEPT static int nested(int levels)
{
	return levels ? RETURNED(nested(levels - 1)) : RETURNED(walk());
}

static void *run(void *unused)
{
	(void)unused;
	return (void *)(long)nested(LEVELS);
}

static void answer(const char *text)
{
	puts(text);
	fflush(stdout);
}

int main(void)
{
	CHECK(sem_init(&waits, 0, 0) == 0 && sem_init(&goes_on, 0, 0) == 0);
	answer("ready");
	char line[16];
	while (fgets(line, sizeof line, stdin)) {
		pthread_t thread;
		CHECK(pthread_create(&thread, 0, run, 0) == 0);
		while (sem_wait(&waits) != 0) {
		}
		answer("within");
		CHECK(fgets(line, sizeof line, stdin));
		sem_post(&goes_on);
		void *found = 0;
		CHECK(pthread_join(thread, &found) == 0);
		CHECK((long)found == LEVELS + 1);
		answer("complete");
	}
	return 5;
}
