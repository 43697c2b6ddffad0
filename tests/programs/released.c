/* Write-protects the stack of a thread, again and again, as programs do that save memory in use; another thread
 * releases pages that are written to. */
#define _GNU_SOURCE
#include "hard.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIZE = 1 << 20, PAGE = 4096, ROUNDS = 3000 };

static int faults;
static char *stack;
static volatile int over;

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

KEPT static long down(long n)
{
	char room[300];
	__asm__ volatile("" ::"r"(room) : "memory");
	return n ? RETURNED(down(n - 1)) + RETURNED(leaf(n)) : 0;
}

static void *work(void *unused)
{
	long sum = 0;
	(void)unused;
	for (int i = 0; i < ROUNDS; i++) {
		sum += down(50);
		for (volatile int wait = 0; wait < 20000; wait++)
			;
	}
	over = 1;
	return (void *)sum;
}

static void protect(unsigned long at, unsigned long bytes, int on)
{
	struct uffdio_writeprotect range = { { at, bytes }, on ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };
	(void)ioctl(faults, UFFDIO_WRITEPROTECT, &range);
}

static void *release(void *unused)
{
	while (!over) {
		struct pollfd wait = { .fd = faults, .events = POLLIN };
		struct uffd_msg fault;
		if (poll(&wait, 1, 10) > 0 && read(faults, &fault, sizeof fault) == sizeof fault &&
		    fault.event == UFFD_EVENT_PAGEFAULT)
			protect(fault.arg.pagefault.address & ~(PAGE - 1UL), PAGE, 0);
	}
	return unused;
}

static void *protect_all(void *unused)
{
	while (!over) {
		protect((unsigned long)stack, SIZE, 1);
		usleep(3000);
	}
	protect((unsigned long)stack, SIZE, 0);
	return unused;
}

int main(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) {
		puts("pages cannot be released here");
		return 0;
	}
	stack = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	struct uffdio_register whole = { .range = { (unsigned long)stack, SIZE }, .mode = UFFDIO_REGISTER_MODE_WP };
	CHECK(stack != MAP_FAILED && ioctl(faults, UFFDIO_REGISTER, &whole) == 0);
	pthread_t worker, releaser, protector;
	pthread_attr_t on_stack;
	void *sum;
	pthread_attr_init(&on_stack);
	CHECK(pthread_attr_setstack(&on_stack, stack, SIZE) == 0);
	CHECK(pthread_create(&releaser, 0, release, 0) == 0);
	CHECK(pthread_create(&worker, &on_stack, work, 0) == 0);
	CHECK(pthread_create(&protector, 0, protect_all, 0) == 0);
	CHECK(pthread_join(protector, 0) == 0 && pthread_join(releaser, 0) == 0);
	CHECK(pthread_join(worker, &sum) == 0);
	printf("%ld\n", (long)sum);
	return 22;
}
