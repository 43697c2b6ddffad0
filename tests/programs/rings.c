/* io_uring with the kernel's own threads in the process: one polls for entries all the time, and one works on a
 * blocking entry. Interrupted, they would fail entries. Prints the number of bytes read. With an argument: reads that
 * time out, waited for by the call that submits them. */
#define _GNU_SOURCE
#include "hard.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRIES = 8, ROUNDS = 1000, TIMEOUTS = 60, BYTES = 4096 };

struct ring {
	int file;
	char *words, *entries;
	struct io_uring_params parameters;
};

static void *mapped(int file, size_t bytes, unsigned long at)
{
	void *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, (off_t)at);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static int set_up(struct ring *ring, unsigned flags)
{
	ring->parameters = (struct io_uring_params){ .flags = flags, .sq_thread_idle = 1000 };
	ring->file = (int)syscall(SYS_io_uring_setup, ENTRIES, &ring->parameters);
	if (ring->file < 0)
		return 0;
	CHECK(ring->parameters.features & IORING_FEAT_SINGLE_MMAP);
	ring->words = mapped(ring->file, BYTES, IORING_OFF_SQ_RING);
	ring->entries = mapped(ring->file, BYTES, IORING_OFF_SQES);
	return 1;
}

static unsigned *word(struct ring *ring, unsigned at)
{
	return (unsigned *)(ring->words + at);
}

static void queue(struct ring *ring, struct io_uring_sqe entry)
{
	struct io_sqring_offsets *at = &ring->parameters.sq_off;
	unsigned tail = *word(ring, at->tail), index = tail & *word(ring, at->ring_mask);
	memcpy(ring->entries + index * sizeof entry, &entry, sizeof entry);
	word(ring, at->array)[index] = index;
	__atomic_store_n(word(ring, at->tail), tail + 1, __ATOMIC_SEQ_CST);
}

static void submit(struct ring *ring, struct io_uring_sqe entry)
{
	struct io_sqring_offsets *at = &ring->parameters.sq_off;
	queue(ring, entry);
	unsigned flags = IORING_ENTER_SQ_WAKEUP;
	if (!(ring->parameters.flags & IORING_SETUP_SQPOLL))
		CHECK(syscall(SYS_io_uring_enter, ring->file, 1, 0, 0, 0, 0) == 1);
	else if (__atomic_load_n(word(ring, at->flags), __ATOMIC_SEQ_CST) & IORING_SQ_NEED_WAKEUP)
		CHECK(syscall(SYS_io_uring_enter, ring->file, 1, 0, flags, 0, 0) >= 0);
}

static int result(struct ring *ring)
{
	struct io_cqring_offsets *at = &ring->parameters.cq_off;
	unsigned head = *word(ring, at->head);
	while (__atomic_load_n(word(ring, at->tail), __ATOMIC_ACQUIRE) == head)
		CHECK(syscall(SYS_io_uring_enter, ring->file, 0, 1, IORING_ENTER_GETEVENTS, 0, 0) >= 0);
	struct io_uring_cqe *all = (struct io_uring_cqe *)(ring->words + at->cqes);
	int value = all[head & *word(ring, at->ring_mask)].res;
	__atomic_store_n(word(ring, at->head), head + 1, __ATOMIC_RELEASE);
	return value;
}

static struct io_uring_sqe reading(int file, void *to, unsigned bytes, unsigned char flags)
{
	return (struct io_uring_sqe){
		.opcode = IORING_OP_READ, .flags = flags, .fd = file, .addr = (unsigned long)to, .len = bytes
	};
}

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

/* A timeout ends these reads, which are submitted and waited for in one call. */
static void time_out(struct ring *ring, int empty)
{
	static const struct __kernel_timespec time = { .tv_nsec = 30 * 1000000 };
	char room[8];
	for (int i = 0; i < TIMEOUTS; i++) {
		queue(ring, reading(empty, room, sizeof room, IOSQE_IO_LINK));
		queue(ring, (struct io_uring_sqe){ .opcode = IORING_OP_LINK_TIMEOUT, .addr = (unsigned long)&time, .len = 1 });
		CHECK(syscall(SYS_io_uring_enter, ring->file, 2, 2, IORING_ENTER_GETEVENTS, 0, 0) == 2);
		int first = result(ring), second = result(ring);
		CHECK(first + second == -ECANCELED - ETIME);
		leaf(i);
	}
}

int main(int count, char **words)
{
	(void)words;
	static char room[BYTES];
	struct ring polled, plain;
	int ends[2], zero = open("/dev/zero", O_RDONLY);
	CHECK(zero >= 0 && pipe(ends) == 0);
	if (!set_up(&polled, IORING_SETUP_SQPOLL) || !set_up(&plain, 0)) {
		puts("this kernel has no io_uring");
		return 0;
	}
	if (count > 1) {
		time_out(&plain, ends[0]);
		puts("timed out");
		return 0;
	}
	submit(&plain, reading(ends[0], room, 10, IOSQE_ASYNC));
	long sum = 0;
	for (int i = 0; i < ROUNDS; i++) {
		submit(&polled, reading(zero, room, sizeof room, 0));
		sum += result(&polled) + leaf(i);
		usleep(200);
	}
	CHECK(write(ends[1], "0123456789", 10) == 10);
	printf("%ld %d\n", sum, result(&plain));
	return 9;
}
