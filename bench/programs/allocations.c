/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Marks what a program allocates, which is preloaded with this. */
#include <nopal.h>

void *__libc_malloc(size_t);
void __libc_free(void *);

void *malloc(size_t bytes)
{
	void *memory = __libc_malloc(bytes);
	NOPAL_MARK(allocated, "bytes=%zu at=%p", bytes, memory);
	return memory;
}

void free(void *memory)
{
	NOPAL_MARK(freed, "at=%p", memory);
	__libc_free(memory);
}
