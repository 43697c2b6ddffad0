/* Adds up one word of each page of fresh memory, then of each second page, then of each fourth. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#define BYTES (8UL << 20)
/* The address is fixed, so that a picture can show this memory alone. */
#define PLACE ((void *)0x100000000000)

__attribute__((noinline)) static double saxpy(double *y, const double *x, size_t words, size_t stride)
{
	double sum = 0;
	for (size_t at = 0; at < words; at += stride) {
		y[at] += 2.0 * x[at];
		sum += y[at];
	}
	return sum;
}

int main(void)
{
	static const size_t strides[] = { 512, 1024, 2048 };
	size_t words = BYTES / 2 / sizeof(double);
	double *all = mmap(PLACE, 3 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		return 1;
	madvise(all, 3 * BYTES, MADV_NOHUGEPAGE);
	for (int i = 0; i < 3; i++) {
		double *y = all + (size_t)i * 2 * words;
		printf("stride %zu: %g\n", strides[i], saxpy(y, y + words, words, strides[i]));
	}
	return 0;
}
