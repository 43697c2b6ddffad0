/* Coroutines by a hand-written switch unknown to any library, on heap stacks: a thousand live at once, resume in
 * changing order, and move from thread to thread. */
#include "hard.h"
#include "switch_stacks.h"
#include <pthread.h>

// calls: 1000 coroutine
// calls: 20000 yield
// calls: 40000 leaf
// calls: 200 traveller
// calls: 2000 hop

#define STACK (16 << 10)

struct coroutine {
	void *inside, *outside;
	char *stack;
	void (*body)(struct coroutine *);
	long value;
	int ended;
};

static __thread struct coroutine *starting;

static void start(void)
{
	struct coroutine *self = starting;
	self->body(self);
	self->ended = 1;
	switch_stacks(&self->inside, self->outside);
	CHECK(!"resumed after its end");
}

static struct coroutine *make(void (*body)(struct coroutine *))
{
	struct coroutine *made = calloc(1, sizeof *made);
	made->stack = malloc(STACK);
	made->body = body;
	/* The stack is as at a call of `start`: the return address is 8 below a multiple of 16. */
	void **top = (void **)(((unsigned long)made->stack + STACK) & ~15ul);
	*--top = NULL;
	*--top = (void *)start;
	top -= 6;
	made->inside = top;
	return made;
}

static void resume(struct coroutine *it)
{
	starting = it;
	switch_stacks(&it->outside, it->inside);
}

static void forget(struct coroutine *it)
{
	CHECK(it->ended);
	free(it->stack);
	free(it);
}

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

KEPT static void yield(struct coroutine *self)
{
	self->value = leaf(self->value);
	switch_stacks(&self->inside, self->outside);
	self->value = leaf(self->value);
}

KEPT static void coroutine(struct coroutine *self)
{
	for (int i = 0; i < 20; i++)
		yield(self);
}

KEPT static void hop(struct coroutine *self)
{
	self->value++;
	switch_stacks(&self->inside, self->outside);
}

KEPT static void traveller(struct coroutine *self)
{
	for (int i = 0; i < 10; i++)
		hop(self);
}

static void *carry(void *travellers)
{
	for (int i = 0; i < 200; i++)
		resume(((struct coroutine **)travellers)[i]);
	return NULL;
}

int main(void)
{
	static struct coroutine *all[1000];
	long sum = 0;
	for (int i = 0; i < 1000; i++)
		all[i] = make(coroutine);
	for (int round = 0; round < 21; round++)
		for (int i = 0; i < 1000; i++)
			resume(all[(i * 7 + round * 13) % 1000]);
	for (int i = 0; i < 1000; i++) {
		sum += all[i]->value;
		forget(all[i]);
	}
	printf("coroutines %ld\n", sum);

	/* Each step of a traveller is taken on a new thread. */
	sum = 0;
	for (int i = 0; i < 200; i++)
		all[i] = make(traveller);
	for (int round = 0; round < 11; round++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, carry, all) == 0);
		pthread_join(thread, NULL);
	}
	for (int i = 0; i < 200; i++) {
		sum += all[i]->value;
		forget(all[i]);
	}
	printf("travellers %ld\n", sum);
	return 0;
}
