/* A library of many functions. */
#define FUNCTION(name) \
	__attribute__((noinline)) static int name(int value) \
	{ \
		__asm__ volatile("" : "+r"(value)); \
		return value % 1000 * 3 + __COUNTER__; \
	}
#define EIGHT(name) \
	FUNCTION(name##0) FUNCTION(name##1) FUNCTION(name##2) FUNCTION(name##3) \
	FUNCTION(name##4) FUNCTION(name##5) FUNCTION(name##6) FUNCTION(name##7)
#define CALL_EIGHT(name) \
	value = name##0(value), value = name##1(value), value = name##2(value), value = name##3(value), \
	value = name##4(value), value = name##5(value), value = name##6(value), value = name##7(value)

EIGHT(many_a) EIGHT(many_b) EIGHT(many_c) EIGHT(many_d)

int many(int value)
{
	CALL_EIGHT(many_a), CALL_EIGHT(many_b), CALL_EIGHT(many_c), CALL_EIGHT(many_d);
	return value;
}
