/* Boehm's collector: it looks for addresses in all words of stacks and registers, stops threads by signals, and calls
 * finalisers. */
#include "../hard.h"
#define GC_THREADS
#include <gc.h>
#include <pthread.h>

struct tree {
	struct tree *left, *right;
	long value;
};

static int finalised;

static void on_end(void *object, void *data)
{
	(void)object, (void)data;
	__atomic_fetch_add(&finalised, 1, __ATOMIC_RELAXED);
}

KEPT struct tree *grow(int depth)
{
	if (depth == 0) {
		return NULL;
	}
	struct tree *tree = GC_MALLOC(sizeof *tree);
	tree->value = depth;
	tree->left = grow(depth - 1);
	tree->right = grow(depth - 1);
	return tree;
}

KEPT long sum(const struct tree *tree)
{
	return tree ? sum(tree->left) + tree->value + sum(tree->right) : 0;
}

KEPT void *work(void *data)
{
	long total = 0;
	for (int i = 0; i < 20; i++) {
		struct tree *tree = grow(12);
		GC_register_finalizer(tree, on_end, NULL, NULL, NULL);
		total += sum(tree);
	}
	*(long *)data = total;
	return NULL;
}

int main(void)
{
	GC_INIT();
	long totals[4];
	pthread_t threads[4];
	for (int i = 0; i < 4; i++) {
		CHECK(pthread_create(&threads[i], NULL, work, &totals[i]) == 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		printf("%ld\n", totals[i]);
	}
	GC_gcollect();
	GC_invoke_finalizers();
	printf("%d\n", finalised > 0);
	return 0;
}
