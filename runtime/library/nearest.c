/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The name that a mistyped one may mean, for an error message.
 */
#include "library.h"

#include <string.h>

/* The compared length of a name. */
#define COMPARED 64

/* The number of insertions, deletions and replacements between two names. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[COMPARED + 1];
	size_t columns = strnlen(b, COMPARED);
	for (unsigned i = 0; i <= columns; i++)
		row[i] = i;
	for (unsigned i = 1; i <= COMPARED && a[i - 1]; i++) {
		unsigned diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= columns; j++) {
			unsigned least = diagonal + (a[i - 1] != b[j - 1]);
			diagonal = row[j];
			least = least < row[j] + 1 ? least : row[j] + 1;
			row[j] = least < row[j - 1] + 1 ? least : row[j - 1] + 1;
		}
	}
	return row[columns];
}

void nearest_look(struct nearest *nearest, const char *wanted, const char *name)
{
	size_t length = strlen(name), wanted_length = strlen(wanted);
	size_t most = wanted_length / 3 + 1;
	size_t stem = strcspn(wanted, "*?");
	/* A glob, where a name is meant: one that it would match is as near as one with another character. */
	if (stem && wanted[stem] && !strncmp(name, wanted, stem)) {
		if (!nearest->name[0] || nearest->distance > 1) {
			nearest->distance = 1;
			strncpy(nearest->name, name, sizeof nearest->name - 1);
		}
		return;
	}
	if (length > wanted_length + most || wanted_length > length + most)
		return;
	unsigned far = distance(name, wanted);
	if (far > most || (nearest->name[0] && far >= nearest->distance))
		return;
	nearest->distance = far;
	strncpy(nearest->name, name, sizeof nearest->name - 1);
}
