/* A thread spins, on memory that is write-protected again and again; another one releases pages that are written to. The
 * kernel writes to that of each thread (rseq). At `hold`, no pages are released until `go`; at `turns`, tells whether the
 * spinning thread goes on. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIZE = 1 << 20, PAGE = 4096 };

static int faults;
static char *stack;
static atomic_int released = 1;
static atomic_long turns;

static void protect(unsigned long at, unsigned long bytes, int on)
{
	struct uffdio_writeprotect range = { { at, bytes }, on ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };
	(void)ioctl(faults, UFFDIO_WRITEPROTECT, &range);
}

static void *spin(void *unused)
{
	/* It may be stopped as soon as that is read, and the lock of a stream would be held. */
	dprintf(1, "%d\n", (int)gettid());
	for (;;)
		turns++;
	return unused;
}

static void *release(void *unused)
{
	for (;;) {
		struct pollfd wait = { .fd = faults, .events = POLLIN };
		struct uffd_msg fault;
		if (released && poll(&wait, 1, 10) > 0 && read(faults, &fault, sizeof fault) == sizeof fault &&
		    fault.event == UFFD_EVENT_PAGEFAULT)
			protect(fault.arg.pagefault.address & ~(PAGE - 1UL), PAGE, 0);
	}
	return unused;
}

static void *protect_all(void *unused)
{
	for (;;) {
		protect((unsigned long)stack, SIZE, 1);
		usleep(1000);
	}
	return unused;
}

int main(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) {
		puts("none");
		return 0;
	}
	stack = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	struct uffdio_register whole = { .range = { (unsigned long)stack, SIZE }, .mode = UFFDIO_REGISTER_MODE_WP };
	pthread_t spinner, releaser, protector;
	pthread_attr_t on_stack;
	pthread_attr_init(&on_stack);
	if (stack == MAP_FAILED || ioctl(faults, UFFDIO_REGISTER, &whole) || pthread_attr_setstack(&on_stack, stack, SIZE) ||
	    pthread_create(&releaser, 0, release, 0) || pthread_create(&spinner, &on_stack, spin, 0) ||
	    pthread_create(&protector, 0, protect_all, 0))
		return 1;
	char line[8];
	while (fgets(line, sizeof line, stdin)) {
		if (*line != 't')
			released = *line == 'g';
		long before = turns;
		usleep(100000);
		puts(turns > before ? "on" : "off");
		fflush(stdout);
	}
	return 0;
}
