/* Functions with a marker: the tests count their instructions while it is off. */
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

int of_char(char *from, int n)
{
	char c = *from;
	NOPAL_MARK(of_char, "c=%c", c);
	from[1] = c;
	return n;
}

int of_byte(unsigned char *from, int n)
{
	unsigned char c = (unsigned char)(*from + 3);
	NOPAL_MARK(of_byte, "c=%hhu", c);
	from[1] = c;
	return n;
}

int of_short(short *from, int n)
{
	short c = *from;
	NOPAL_MARK(of_short, "c=%hd", c);
	return c + n;
}

int of_bool(_Bool *b, int n)
{
	_Bool c = *b;
	NOPAL_MARK(of_bool, "c=%d", c);
	b[1] = c;
	return n;
}

enum state { IDLE, BUSY, DONE };

enum state of_enum(int a, enum state *b)
{
	enum state c = a ? DONE : BUSY;
	NOPAL_MARK(of_enum, "c=%d{idle,busy,done}", c);
	*b = c;
	return c;
}

float of_float(float a, float *b)
{
	float c = a + *b;
	NOPAL_MARK(of_float, "c=%f", c);
	*b = c;
	return c;
}

unsigned of_unsigned(unsigned a, unsigned *b)
{
	unsigned c = a + *b;
	NOPAL_MARK(of_unsigned, "c=%u", c);
	*b = c;
	return c * 7;
}
