// A library with frames that exceptions pass; one of them cleans up.
#include "hard.h"

static int cleaned;

struct Cleanup {
	~Cleanup() { cleaned++; }
};

KEPT static int library_inner(int (*inner)(int), int n)
{
	Cleanup cleanup;
	return RETURNED(inner(n)) + cleaned;
}

extern "C" KEPT int throws_through(int (*inner)(int), int n) { return RETURNED(library_inner(inner, n)) + 1; }
