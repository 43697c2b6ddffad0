/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The functions that a C compiler may call without being asked.
 */
#include <stddef.h>

void *memset(void *target, int byte, size_t length);
void *memcpy(void *restrict target, const void *restrict source, size_t length);

void *memset(void *target, int byte, size_t length)
{
	unsigned char *to = target;
	while (length--)
		*to++ = (unsigned char)byte;
	return target;
}

void *memcpy(void *restrict target, const void *restrict source, size_t length)
{
	unsigned char *to = target;
	const unsigned char *from = source;
	while (length--)
		*to++ = *from++;
	return target;
}
