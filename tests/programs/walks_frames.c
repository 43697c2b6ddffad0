/* Functions that follow frame pointers to the callers of their callers, as samplers of profilers do. */
#include "hard.h"

// calls: 300 asks
// calls: 300 asks_far
// calls: 400 walk
// calls: 400 unlinked

struct frame {
	const struct frame *next;
	const char *returns;
};

extern const char __executable_start, etext;

static int is_own(const void *address)
{
	const char *at = address;
	return at > &__executable_start && at < &etext;
}

KEPT static void *asks(void)
{
	return __builtin_return_address(1);
}

KEPT static void *asks_far(void)
{
	return __builtin_return_address(2);
}

KEPT static void *asked(void)
{
	return RETURNED(asks());
}

KEPT static void *asked_far(void)
{
	return RETURNED(asks_far());
}

KEPT static void *from_afar(void)
{
	return RETURNED(asked_far());
}

KEPT static int walk(int frames)
{
	const struct frame *frame = __builtin_frame_address(0);
	int own = 0;
	for (; frames > 0; frames--, frame = frame->next) {
		own += is_own(frame->returns);
	}
	return own;
}

KEPT static int deep(int levels, int frames)
{
	return levels ? RETURNED(deep(levels - 1, frames)) : RETURNED(walk(frames));
}

/* This function keeps no frame pointer, so a frame pointer does not lead to its return address. */
__attribute__((optimize("omit-frame-pointer"))) KEPT static int unlinked(int levels)
{
	return RETURNED(deep(levels, levels + 1));
}

int main(void)
{
	int asked_right = 0, walked_right = 0;
	for (int i = 0; i < 300; i++) {
		asked_right += is_own(asked()) + is_own(from_afar());
	}
	for (int i = 0; i < 400; i++) {
		walked_right += unlinked(i % 40) == i % 40 + 1;
	}
	printf("%d %d\n", asked_right, walked_right);
	return asked_right == 600 && walked_right == 400 ? 0 : 1;
}
