/* Writes its input in capitals to its output, and the length to its errors. */
#include "hard.h"
#include <ctype.h>

KEPT static int upper(int c) { return toupper(c); }

int main(void)
{
	long count = 0;
	for (int c; (c = getchar()) != EOF; count++)
		putchar(upper(c));
	fprintf(stderr, "%ld characters\n", count);
	printf("\ncalls: %ld upper\n", count);
	return 0;
}
