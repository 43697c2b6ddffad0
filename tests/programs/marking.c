/* A library with markers, which is loaded late, closed and loaded again. */
#include "hard.h"

#include "../../include/nopal.h"

__attribute__((constructor)) static void on_load(void)
{
	NOPAL_MARK(plugin_begins, "");
}

KEPT void late(void)
{
	NOPAL_MARK(plugin_late, "");
}

int library_entry(int (*callback)(int), int n)
{
	int result = 50;
	for (int i = 0; i < n; i++) {
		NOPAL_MARK(plugin_turn, "i=%d", i);
		result += callback(i);
	}
	NOPAL_MARK_GENERIC(plugin_end, "n=%d", n);
	return result;
}
