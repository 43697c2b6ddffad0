/* Linked to copies of crowd.c, as many as it is given the number of. */
#include "hard.h"

int main(int count, char **words)
{
	CHECK(count == 2);
	printf("calls: %s crowded\n", words[1]);
	return 0;
}
