/* Linked to copies of crowd.c; an argument gives their number. */
#include "hard.h"

extern void f_0000(void);

int main(int count, char **words)
{
	CHECK(count == 2);
	f_0000();
	printf("calls: %s crowded\ncalls: 1 f_0000\n", words[1]);
	return 0;
}
