// Submits a timeout to the kernel's ring and waits for it in the same call, over and over. Says, when it is told to end,
// how often the call returned without.
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int over, early, waits;

static void *submit(void *unused) {
	struct io_uring_params params = {0};
	int ring = syscall(SYS_io_uring_setup, 4, &params);
	int access = PROT_READ | PROT_WRITE;
	char *queues = mmap(0, 1 << 16, access, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	struct io_uring_sqe *entries = mmap(0, 4096, access, MAP_SHARED, ring, IORING_OFF_SQES);
	if (ring < 0 || queues == MAP_FAILED || entries == MAP_FAILED) {
		puts("no ring");
		_exit(0);
	}
	unsigned *tail = (void *)(queues + params.sq_off.tail), *array = (void *)(queues + params.sq_off.array);
	_Atomic unsigned *done = (void *)(queues + params.cq_off.tail), *taken = (void *)(queues + params.cq_off.head);
	struct __kernel_timespec time = {0, 3000000};
	puts("ready");
	fflush(stdout);
	while (!over) {
		unsigned at = *tail & (params.sq_entries - 1);
		entries[at] = (struct io_uring_sqe){.opcode = IORING_OP_TIMEOUT, .fd = -1, .addr = (unsigned long)&time, .len = 1};
		array[at] = at;
		__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
		long submitted = syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
		if (submitted != 1 || *done == *taken)
			early++;
		while (*done == *taken)
			usleep(100);
		*taken = *done;
		waits++;
	}
	return unused;
}

int main(void) {
	pthread_t thread;
	char byte;
	pthread_create(&thread, 0, submit, 0);
	if (read(0, &byte, 1) != 1)
		return 1;
	over = 1;
	pthread_join(thread, 0);
	printf("%d early%s\n", early, waits ? "" : ", and none at all");
	return 0;
}
