/* Functions with a marker, of which the tests count the instructions that run while it is off. */
#include <nopal.h>

int alone(void)
{
	NOPAL_MARK(alone, "%d %p", 1, (void *)0);
	return -1;
}

int with_values(int a, int *b, const char *name)
{
	int c = a + *b;
	NOPAL_MARK(with_values, "c=%d b=%p name=%s", c, b, name);
	*b = c;
	return c * 3;
}
