/* A function with a marker, from the first papers on markers. The program writes some of the function's bytes to a file, as
 * they are in memory. */
#include <nopal.h>
#include <stdio.h>
#include <stdlib.h>

int my_open(void *inode, void *file);

__attribute__((noinline, noclone)) int my_open(void *inode, void *file)
{
	(void)inode;
	(void)file;
	NOPAL_MARK(subsys_mark1, "%d %p", 1, NULL);
	return -1;
}

int main(int count, char **words)
{
	FILE *out = count > 2 ? fopen(words[1], "w") : NULL;
	size_t bytes = count > 2 ? strtoul(words[2], NULL, 16) : 0;
	if (!out || fwrite((const void *)my_open, 1, bytes, out) != bytes || fclose(out))
		return 1;
	return my_open(NULL, NULL) == -1 ? 0 : 1;
}
