/* A marker that takes its values as printf does, and parses the format at each pass while it is on, to compare others with.
 * C only. */
#include <nopal.h>

#define NOPAL_VARIABLE(index, x) , (x)
#define NOPAL_MARK_VARIABLE(name, ...)                                                                                 \
	NOPAL_MARK_AT(NOPAL_PATCHED, NOPAL_PLACE_PATCHED, NOPAL_WITH_VARIABLE, #name, __VA_ARGS__)

#define NOPAL_WITH_VARIABLE(use, ...)                                                                                  \
	do {                                                                                                           \
		uint64_t nopal_array[NOPAL_VALUES];                                                                    \
		const uint64_t *const nopal_values = nopal_array;                                                      \
		nopal_read(nopal_array, NOPAL_FORMAT(__VA_ARGS__) NOPAL_EACH(NOPAL_VARIABLE, __VA_ARGS__));                \
		use;                                                                                                   \
	} while (0)

/* Stores the values of a format that has been checked. */
__attribute__((noinline, cold, unused)) static void nopal_read(uint64_t *words, const char *format, ...)
{
	__builtin_va_list values;
	__builtin_va_start(values, format);
	for (uint64_t *end = words + NOPAL_VALUES; words < end;) {
		int longs = 0, shorts = 0, is_size = 0;
		while (*format && *format != '%')
			format++;
		if (!*format++)
			break;
		for (;; format++) {
			longs += *format == 'l';
			shorts += *format == 'h';
			is_size |= *format == 'z' || *format == 'j' || *format == 't';
			if (!*format || !__builtin_strchr("#0- +.123456789hlqjzt", *format))
				break;
		}
		switch (*format++) {
		case 'd':
		case 'i': {
			const int64_t wide = longs || is_size ? __builtin_va_arg(values, long) : __builtin_va_arg(values, int);
			*words++ = (uint64_t)(shorts > 1 ? (int8_t)wide : shorts ? (int16_t)wide : wide);
			break;
		}
		case 'f': case 'F': case 'e': case 'E': case 'g': case 'G': case 'a': case 'A': {
			const double value = __builtin_va_arg(values, double);
			__builtin_memcpy(words++, &value, sizeof value);
			break;
		}
		case 's':
		case 'p':
			*words++ = (uint64_t)(uintptr_t)__builtin_va_arg(values, void *);
			break;
		case '%':
			break;
		case 0:
			format--;
			break;
		default: {
			const uint64_t wide = longs || is_size ? __builtin_va_arg(values, unsigned long) :
								 __builtin_va_arg(values, unsigned);
			*words++ = shorts > 1 ? (uint8_t)wide : shorts ? (uint16_t)wide : wide;
		}
		}
	}
	__builtin_va_end(values);
}
