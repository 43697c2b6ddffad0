/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A library to be preloaded, which marks the allocations of a program. The markers stand first: behind a call, they would
 * turn a jump to libc's function into a call of it. */
#include <nopal.h>

void *__libc_malloc(size_t);
void __libc_free(void *);

void *malloc(size_t bytes)
{
	NOPAL_MARK(allocated, "bytes=%zu", bytes);
	return __libc_malloc(bytes);
}

void free(void *memory)
{
	NOPAL_MARK(freed, "at=%p", memory);
	__libc_free(memory);
}
