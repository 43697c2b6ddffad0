/* The system calls of threads read pages that another thread provides. Tells how many reads were wrong, when it may read a
 * byte itself. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGES = 256, PAGE = 4096, READERS = 3 };

static int faults, over[READERS];
static atomic_int wrong;

static void *provide(void *unused)
{
	static char page[PAGE] = { 42 };
	struct uffd_msg fault;
	while (read(faults, &fault, sizeof fault) == sizeof fault) {
		struct uffdio_copy copy = { .dst = fault.arg.pagefault.address & ~(PAGE - 1UL), .src = (unsigned long)page, .len = PAGE };
		usleep(100);
		(void)ioctl(faults, UFFDIO_COPY, &copy);
	}
	return unused;
}

static void *read_all(void *number)
{
	int *is_over = number, ends[2];
	char *pages = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), byte = 0;
	struct uffdio_register whole = { .range = { (unsigned long)pages, PAGES * PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	if (pages == MAP_FAILED || ioctl(faults, UFFDIO_REGISTER, &whole) || pipe(ends)) {
		wrong++;
		return 0;
	}
	for (int i = 0; !*(volatile int *)is_over; i = (i + 1) % PAGES) {
		if (i == 0)
			madvise(pages, PAGES * PAGE, MADV_DONTNEED);
		if (write(ends[1], pages + i * PAGE, 1) != 1 || read(ends[0], &byte, 1) != 1 || byte != 42)
			wrong++;
	}
	return 0;
}

int main(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	pthread_t provider, readers[READERS];
	char byte;
	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) {
		puts("none");
		return 0;
	}
	if (pthread_create(&provider, 0, provide, 0))
		return 1;
	for (int i = 0; i < READERS; i++)
		if (pthread_create(&readers[i], 0, read_all, &over[i]))
			return 1;
	puts("ready");
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 1;
	for (int i = 0; i < READERS; i++) {
		*(volatile int *)&over[i] = 1;
		pthread_join(readers[i], 0);
	}
	printf("%d wrong\n", wrong);
	return 0;
}
