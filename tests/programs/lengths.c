/* Reads the bytes of an instruction from each line, in hexadecimal, and prints the number of lines, of those for which
 * instruction_at found another length, and of those for which it found none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/library/instructions.c"

int main(void)
{
	char line[4096];
	long all = 0, wrong = 0, unknown = 0;
	while (fgets(line, sizeof line, stdin)) {
		uint8_t bytes[40] = { 0 };
		uint32_t length = 0;
		for (char *word = strtok(line, " \n"); word && length < 20; word = strtok(NULL, " \n"))
			bytes[length++] = (uint8_t)strtoul(word, NULL, 16);
		struct instruction found;
		all++;
		if (!instruction_at(bytes, sizeof bytes, (uint64_t)bytes, &found))
			unknown++;
		else
			wrong += found.length != length;
	}
	printf("%ld %ld %ld\n", all, wrong, unknown);
	return 0;
}
