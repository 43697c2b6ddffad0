/* Code made at run time by tcc -run or lli, with no file behind it, and calls to and from libc's functions. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static jmp_buf back;
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static int deep(int n) { if (n == 0) longjmp(back, 1); return deep(n - 1) + 1; }
static void *work(void *data)
{
	long total = 0;
	for (int round = 0; round < 20; round++) {
		int list[2000];
		for (int i = 0; i < 2000; i++) list[i] = i * 7919 % 1009;
		qsort(list, 2000, sizeof *list, compare);
		total += list[1999];
	}
	*(long *)data = total;
	return NULL;
}

int main(void)
{
	const char *hold = getenv("HOLD");
	while (hold && access(hold, F_OK) != 0);
	volatile int caught = 0;
	for (volatile int i = 0; i < 20000; i++) {
		if (setjmp(back) == 0) deep(i % 50); else caught++;
	}
	printf("%d\n", caught);
	long totals[4];
	pthread_t threads[4];
	for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, &totals[i]);
	for (int i = 0; i < 4; i++) { pthread_join(threads[i], NULL); printf("%ld\n", totals[i]); }
	for (int i = 0; i < 20000; i++) free(malloc(i % 1000));
	return 16;
}
