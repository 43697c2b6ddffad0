/* Threads hold locks and block signals a known number of times; they print their names. One of each does it for much
 * longer. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LONG_MS 300

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER, recursive;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;

static void pass(long ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

static void say(const char *name)
{
	printf("%s %ld\n", name, (long)syscall(SYS_gettid));
}

static void *hold_10(void *unused)
{
	say("hold_10");
	for (int i = 0; i < 10; i++) {
		pthread_mutex_lock(&mutex);
		if (i == 3)
			pass(LONG_MS);
		pthread_mutex_unlock(&mutex);
	}
	return unused;
}

/* A lock taken twice and given back twice is held once. */
static void *hold_4(void *unused)
{
	say("hold_4");
	for (int i = 0; i < 4; i++) {
		pthread_mutex_lock(&recursive);
		pthread_mutex_lock(&recursive);
		pthread_mutex_unlock(&recursive);
		pthread_mutex_unlock(&recursive);
	}
	return unused;
}

/* A refused lock is not held; a thread that waits for a condition holds no lock meanwhile. */
static void *hold_7(void *unused)
{
	struct timespec past = { 0 };
	say("hold_7");
	pthread_rwlock_wrlock(&rwlock);
	pthread_rwlock_unlock(&rwlock);
	pthread_rwlock_rdlock(&rwlock);
	pthread_rwlock_unlock(&rwlock);
	pthread_spin_trylock(&spin);
	pthread_spin_trylock(&spin);
	pthread_spin_unlock(&spin);
	pthread_mutex_lock(&other);
	pthread_mutex_trylock(&other);
	pthread_mutex_timedlock(&other, &past);
	pthread_cond_timedwait(&condition, &other, &past);
	pthread_mutex_unlock(&other);
	pthread_mutex_trylock(&other);
	pthread_mutex_unlock(&other);
	pthread_mutex_timedlock(&other, &past);
	pthread_mutex_unlock(&other);
	return unused;
}

static void *block_5(void *unused)
{
	sigset_t all, before;
	say("block_5");
	sigfillset(&all);
	for (int i = 0; i < 5; i++) {
		pthread_sigmask(SIG_BLOCK, &all, &before);
		pthread_sigmask(SIG_BLOCK, 0, &all);
		if (i == 2)
			pass(LONG_MS);
		sigprocmask(SIG_SETMASK, &before, 0);
	}
	return unused;
}

int main(void)
{
	void *(*const threads[])(void *) = { hold_10, hold_4, hold_7, block_5 };
	pthread_mutexattr_t attribute;
	pthread_mutexattr_init(&attribute);
	pthread_mutexattr_settype(&attribute, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&recursive, &attribute);
	pthread_spin_init(&spin, 0);
	for (unsigned i = 0; i < sizeof threads / sizeof threads[0]; i++) {
		pthread_t thread;
		pthread_create(&thread, 0, threads[i], 0);
		pthread_join(thread, 0);
	}
	return 0;
}
