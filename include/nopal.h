/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Markers: places in a program that can be traced by name, with values.
 *
 *     #include <nopal.h>
 *     NOPAL_MARK(net_rx, "len=%d device=%s", length, name);
 *
 * There is nothing to link and nothing to register. C11 and C++17, gcc 10 and clang 14 or newer, x86-64 ELF. A marker
 * that is off is one NOP; its values are computed only while it is on. The format is printf's and is checked by the
 * compiler; a name and '=' before a conversion is the name of that field. Up to NOPAL_VALUES values:
 *
 *     integers, bool, char, enums, floating point (not long double), pointers, strings
 *     NOPAL_BYTES(address, length)     with %s: text that needs no NUL; with %p: bytes
 *     "state=%d{idle,busy=4,done}"     labels for an integer, right behind its conversion
 *
 * NOPAL_MARK_GENERIC is the same for code that cannot be patched: it loads a byte and tests it. With NOPAL_OFF defined,
 * markers compile to nothing, but are still checked.
 *
 * While its marker is on, a string is read as printf would read it. Markers may stand anywhere: in signal handlers and
 * leaf functions, before main and after exit. docs/markers.md describes the layout of the structures below.
 *
 * The same in modules of a Linux kernel, where a marker is a jump label of the kernel's own, there are no
 * floating-point values, and a string may point anywhere. The module needs no part of nopal until a marker is switched
 * on.
 */
#ifndef NOPAL_H
#define NOPAL_H

#ifdef __KERNEL__
#include <linux/jump_label.h>
#include <linux/types.h>
#else
#include <stddef.h>
#include <stdint.h>
#endif

#if !defined(__x86_64__) && !defined(__KERNEL__) && !defined(NOPAL_OFF)
#define NOPAL_OFF
#endif

#define NOPAL_VALUES 12

/* The types of values, four bits each in a marker's note; 0 ends them. */
#define NOPAL_TYPE_I8 1
#define NOPAL_TYPE_I16 2
#define NOPAL_TYPE_I32 3
#define NOPAL_TYPE_I64 4
#define NOPAL_TYPE_U8 5
#define NOPAL_TYPE_U16 6
#define NOPAL_TYPE_U32 7
#define NOPAL_TYPE_U64 8
#define NOPAL_TYPE_DOUBLE 9     /* a float is passed as a double, as to printf */
#define NOPAL_TYPE_POINTER 10
#define NOPAL_TYPE_STRING 11
#define NOPAL_TYPE_BYTES 12     /* the value is the address of a struct nopal_bytes */

/* Notes of owner "nopal". Addresses are relative to the field that holds them. */
#define NOPAL_NOTE_PLACE 1
#define NOPAL_NOTE_MARKER 2
#define NOPAL_NOTE_PROBE 3
#define NOPAL_PLACE_PATCHED 1   /* `place` is a 5-byte NOP, all of it in one aligned word of 8 bytes */
#define NOPAL_PLACE_TESTED 2    /* `place` is a word of 8 bytes: its first byte is tested, and not 0 is on */

/* A place of a marker: the one with the same name, file and line. */
struct nopal_place_note {
	int32_t place;
	int32_t on;             /* the code that runs when it is on */
	int32_t name;
	int32_t file;
	uint32_t line;
	uint32_t kind;
};

struct nopal_marker_note {
	int32_t marker;         /* struct nopal_marker */
	int32_t idle;           /* a return instruction: the value of `call` when no function is connected any more */
	int32_t name;
	int32_t format;
	int32_t file;
	uint32_t line;
	uint32_t types[2];      /* 6 values each */
};

/* A NOPAL_PROBE (nopal_probe.h). */
struct nopal_probe_note {
	int32_t function;
};

#ifdef __KERNEL__

/* In a module. nopal finds markers by the jump labels of their keys, and knows them by `magic`. */
struct nopal_marker {
	struct static_key_false key;    /* on while somebody wants the marker's values */
	uint64_t magic;
	const char *name;
	const char *format;
	const char *file;
	uint32_t line;
	uint32_t types[2];              /* 6 values each */
	/* 0 while nobody wants the events. It is loaded after the values are computed, which may take long. */
	void (*call)(struct nopal_marker *marker, const uint64_t *values);
	void *host;                     /* whose function that is */
};
#define NOPAL_MARKER_MAGIC 0x312072656b72616dull

#else

/* The function connected to a marker. All zero until the marker is switched on; `call` is filled in first. */
struct nopal_marker {
	/* Called with %rax = the values, a word of 64 bits each; %r11 = this; and %r10 = the word that was in place of the
	 * return address, which may be one of the values. Preserves all registers of any kind except the flags, and the
	 * 120 bytes below its return address. Once set it is never 0 again, since a thread may be about to call it. */
	void (*call)(void);
	void (*record)(void);   /* the tool's; by the same rules */
	uint64_t event;         /* the tool's */
	uint64_t shape;         /* the tool's */
	void *probes;           /* libnopal's */
};

#endif

struct nopal_bytes {
	const void *address;
	size_t length;
};

#define NOPAL_TEXT_(x) #x
#define NOPAL_TEXT(x) NOPAL_TEXT_(x)

/* ---- Values ---- */

#ifdef __cplusplus

#include <cstring>
#include <type_traits>

namespace nopal {

template <typename T> constexpr unsigned type_of()
{
	using V = std::decay_t<T>;
	if constexpr (std::is_enum_v<V>)
		return type_of<std::underlying_type_t<V>>();
	else if constexpr (std::is_same_v<V, nopal_bytes>)
		return NOPAL_TYPE_BYTES;
	else if constexpr (std::is_floating_point_v<V> && sizeof(V) <= sizeof(double))
		return NOPAL_TYPE_DOUBLE;
	else if constexpr (std::is_integral_v<V> && sizeof(V) <= sizeof(uint64_t))
		return (std::is_signed_v<V> ? NOPAL_TYPE_I8 : NOPAL_TYPE_U8) +
		       (sizeof(V) == 1 ? 0 : sizeof(V) == 2 ? 1 : sizeof(V) == 4 ? 2 : 3);
	else if constexpr (std::is_pointer_v<V> || std::is_null_pointer_v<V>)
		return std::is_same_v<std::remove_cv_t<std::remove_pointer_t<V>>, char> ? NOPAL_TYPE_STRING
											 : NOPAL_TYPE_POINTER;
	else
		return 0;
}

template <typename... T> struct list {
	static_assert(sizeof...(T) <= NOPAL_VALUES, "a marker has at most 12 values");
	static_assert(((type_of<T>() != 0) && ...), "a marker's values are numbers, pointers, strings and NOPAL_BYTES");
	static constexpr uint32_t pack(unsigned first)
	{
		const unsigned types[] = { type_of<T>()..., 0 };
		uint32_t packed = 0;
		for (unsigned i = first; i < first + 6 && i < sizeof...(T); i++)
			packed |= types[i] << (i - first) * 4;
		return packed;
	}
	enum : uint32_t { low = pack(0), high = pack(6) };
};

/* The format is the first argument of a marker. */
template <size_t N, typename... T> list<std::decay_t<T>...> list_of(const char (&format)[N], const T &...);

inline __attribute__((always_inline)) uint64_t word(const nopal_bytes &value)
{
	return reinterpret_cast<uint64_t>(&value);
}

template <typename T> inline __attribute__((always_inline)) uint64_t word(T value)
{
	/* Widened only where the marker is on: otherwise compilers would compute with wide numbers at once. */
	if constexpr (std::is_same_v<T, float>)
		__asm__("" : "+x"(value));
	else if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(uint64_t))
		__asm__("" : "+r"(value));
	if constexpr (std::is_floating_point_v<T>) {
		const double wide = static_cast<double>(value);
		uint64_t bits;
		std::memcpy(&bits, &wide, sizeof bits);
		return bits;
	} else if constexpr (std::is_null_pointer_v<T>) {
		return 0;
	} else if constexpr (std::is_pointer_v<T>) {
		return (uint64_t)value;
	} else {
		return static_cast<uint64_t>(value);
	}
}

template <size_t Count> struct words {
	uint64_t word[Count ? Count : 1];
};

/* Temporaries that the values refer to live as long as the expression that this is called in. */
template <size_t N, typename... T>
inline __attribute__((always_inline)) words<sizeof...(T)> words_of(const char (&)[N], const T &...value)
{
	return { { ::nopal::word(value)... } };
}

/* In the form for printf. */
template <typename T> constexpr auto printable(T value)
{
	if constexpr (std::is_enum_v<T>)
		return static_cast<std::underlying_type_t<T>>(value);
	else if constexpr (std::is_same_v<T, nopal_bytes>)
		return static_cast<const char *>("");
	else if constexpr (std::is_null_pointer_v<T>)
		return static_cast<const void *>(value);
	else
		return value;
}

} // namespace nopal

#define NOPAL_BYTES(address, length) (::nopal_bytes{ (address), static_cast<size_t>(length) })

#define NOPAL_PRINTABLE(index, x) , ::nopal::printable(x)
#define NOPAL_TYPES_LOW(...) (decltype(::nopal::list_of(__VA_ARGS__))::low)
#define NOPAL_TYPES_HIGH(...) (decltype(::nopal::list_of(__VA_ARGS__))::high)
#define NOPAL_WITH_VALUES(use, ...)                                                                                    \
	do {                                                                                                           \
		const uint64_t *nopal_values;                                                                          \
		(void)(nopal_values = ::nopal::words_of(__VA_ARGS__).word, ({ use; 0; }));                             \
	} while (0)
#define NOPAL_C_LINKAGE extern "C"

#else /* C */

static inline __attribute__((always_inline)) uint64_t nopal_of_long(int64_t value)
{
	return (uint64_t)value;
}
static inline __attribute__((always_inline)) uint64_t nopal_of_unsigned_long(uint64_t value)
{
	return value;
}
/* Widened only where the marker is on: otherwise compilers would compute with wide numbers at once. */
#define NOPAL_OF_NARROW(name, type)                                                                                    \
	static inline __attribute__((always_inline)) uint64_t name(type value)                                         \
	{                                                                                                              \
		__asm__("" : "+r"(value));                                                                             \
		return (uint64_t)value;                                                                                \
	}
NOPAL_OF_NARROW(nopal_of_char, char)
NOPAL_OF_NARROW(nopal_of_signed_char, signed char)
NOPAL_OF_NARROW(nopal_of_short, short)
NOPAL_OF_NARROW(nopal_of_int, int)
NOPAL_OF_NARROW(nopal_of_bool, _Bool)
NOPAL_OF_NARROW(nopal_of_unsigned_char, unsigned char)
NOPAL_OF_NARROW(nopal_of_unsigned_short, unsigned short)
NOPAL_OF_NARROW(nopal_of_unsigned, unsigned)
#ifdef __KERNEL__
/* Compilers refuse to take them for pointers. */
#define nopal_of_double nopal_of_pointer
#define nopal_of_float nopal_of_pointer
#else
static inline __attribute__((always_inline)) uint64_t nopal_of_double(double value)
{
	union {
		double value;
		uint64_t bits;
	} both = { value };
	return both.bits;
}
static inline __attribute__((always_inline)) uint64_t nopal_of_float(float value)
{
	__asm__("" : "+x"(value));
	return nopal_of_double((double)value);
}
#endif
static inline __attribute__((always_inline)) uint64_t nopal_of_pointer(const volatile void *value)
{
	return (uint64_t)(uintptr_t)value;
}

#define NOPAL_BYTES(address, length) (&(const struct nopal_bytes){ (address), (size_t)(length) })

#ifdef __CHAR_UNSIGNED__
#define NOPAL_IF_CHAR_SIGNED(yes, no) no
#else
#define NOPAL_IF_CHAR_SIGNED(yes, no) yes
#endif
#define NOPAL_CHOOSE(x, signed_, unsigned_, double_, string_, bytes_, pointer_)                                        \
	_Generic((x), char: NOPAL_IF_CHAR_SIGNED(signed_, unsigned_), signed char: signed_, short: signed_,            \
		 int: signed_, long: signed_, long long: signed_, _Bool: unsigned_, unsigned char: unsigned_,          \
		 unsigned short: unsigned_, unsigned: unsigned_, unsigned long: unsigned_,                             \
		 unsigned long long: unsigned_, float: double_, double: double_, char *: string_,                      \
		 const char *: string_, const struct nopal_bytes *: bytes_, default: pointer_)
#define NOPAL_OF_SIZE(x, of_byte) ((of_byte) + (sizeof(x) == 1 ? 0u : sizeof(x) == 2 ? 1u : sizeof(x) == 4 ? 2u : 3u))
#define NOPAL_TYPE(x)                                                                                                  \
	NOPAL_CHOOSE(x, NOPAL_OF_SIZE(x, NOPAL_TYPE_I8), NOPAL_OF_SIZE(x, NOPAL_TYPE_U8), (unsigned)NOPAL_TYPE_DOUBLE, \
		     (unsigned)NOPAL_TYPE_STRING, (unsigned)NOPAL_TYPE_BYTES, (unsigned)NOPAL_TYPE_POINTER)

#define NOPAL_WORD(index, x)                                                                                           \
	_Generic((x), char: nopal_of_char, signed char: nopal_of_signed_char, short: nopal_of_short, int: nopal_of_int, \
		 _Bool: nopal_of_bool, unsigned char: nopal_of_unsigned_char,                                          \
		 unsigned short: nopal_of_unsigned_short, unsigned: nopal_of_unsigned, long: nopal_of_long,            \
		 long long: nopal_of_long, unsigned long: nopal_of_unsigned_long,                                      \
		 unsigned long long: nopal_of_unsigned_long,                                                           \
		 float: nopal_of_float, double: nopal_of_double, default: nopal_of_pointer)(x),
#define NOPAL_PRINTABLE(index, x) , _Generic((x), const struct nopal_bytes *: "", default: (x))
#define NOPAL_TYPES_LOW(...) (0u NOPAL_EACH(NOPAL_TYPE_LOW, __VA_ARGS__))
#define NOPAL_TYPES_HIGH(...) (0u NOPAL_EACH(NOPAL_TYPE_HIGH, __VA_ARGS__))
#define NOPAL_WITH_VALUES(use, ...)                                                                                    \
	do {                                                                                                           \
		const uint64_t nopal_array[NOPAL_COUNT(__VA_ARGS__) + 1 - !!NOPAL_COUNT(__VA_ARGS__)] = {              \
			NOPAL_EACH(NOPAL_WORD, __VA_ARGS__)                                                            \
		};                                                                                                     \
		const uint64_t *const nopal_values = nopal_array;                                                      \
		use;                                                                                                   \
	} while (0)
#define NOPAL_C_LINKAGE
#define NOPAL_TYPE_LOW(index, x) | (index < 6 ? NOPAL_TYPE(x) << (index) % 6 * 4 : 0u)
#define NOPAL_TYPE_HIGH(index, x) | (index >= 6 ? NOPAL_TYPE(x) << (index) % 6 * 4 : 0u)

#endif

/* ---- The format ---- */

/* NOPAL_EACH(m, format, values...): m(index, value) for each value. */
#define NOPAL_COUNT(...)                                                                                               \
	NOPAL_PICK(__VA_ARGS__, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, \
		   0, 0)
#define NOPAL_PICK(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, picked, ...) picked
#define NOPAL_JOIN_(a, b) a##b
#define NOPAL_JOIN(a, b) NOPAL_JOIN_(a, b)
#define NOPAL_EACH(m, ...) NOPAL_JOIN(NOPAL_EACH_, NOPAL_COUNT(__VA_ARGS__))(m, __VA_ARGS__)
#define NOPAL_EACH_MANY(...) a_marker_has_at_most_12_values
#define NOPAL_EACH_0(m, f)
#define NOPAL_EACH_1(m, f, v0) m(0, v0)
#define NOPAL_EACH_2(m, f, v0, v1) m(0, v0) m(1, v1)
#define NOPAL_EACH_3(m, f, v0, v1, v2) m(0, v0) m(1, v1) m(2, v2)
#define NOPAL_EACH_4(m, f, v0, v1, v2, v3) m(0, v0) m(1, v1) m(2, v2) m(3, v3)
#define NOPAL_EACH_5(m, f, v0, v1, v2, v3, v4) m(0, v0) m(1, v1) m(2, v2) m(3, v3) m(4, v4)
#define NOPAL_EACH_6(m, f, v0, v1, v2, v3, v4, v5) m(0, v0) m(1, v1) m(2, v2) m(3, v3) m(4, v4) m(5, v5)
#define NOPAL_EACH_7(m, f, v0, v1, v2, v3, v4, v5, v6) m(0, v0) m(1, v1) m(2, v2) m(3, v3) m(4, v4) m(5, v5) m(6, v6)
#define NOPAL_EACH_8(m, f, v0, v1, v2, v3, v4, v5, v6, v7) m(0, v0) m(1, v1) m(2, v2) m(3, v3) m(4, v4) m(5, v5) m(6, v6) m(7, v7)
#define NOPAL_EACH_9(m, f, v0, v1, v2, v3, v4, v5, v6, v7, v8) m(0, v0) m(1, v1) m(2, v2) m(3, v3) m(4, v4) m(5, v5) m(6, v6) m(7, v7) m(8, v8)
#define NOPAL_EACH_10(m, f, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9) m(0, v0) m(1, v1) m(2, v2) m(3, v3) m(4, v4) m(5, v5) m(6, v6) m(7, v7) m(8, v8) m(9, v9)
#define NOPAL_EACH_11(m, f, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10) m(0, v0) m(1, v1) m(2, v2) m(3, v3) m(4, v4) m(5, v5) m(6, v6) m(7, v7) m(8, v8) m(9, v9) m(10, v10)
#define NOPAL_EACH_12(m, f, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11) m(0, v0) m(1, v1) m(2, v2) m(3, v3) m(4, v4) m(5, v5) m(6, v6) m(7, v7) m(8, v8) m(9, v9) m(10, v10) m(11, v11)
#define NOPAL_FORMAT(...) NOPAL_FORMAT_(__VA_ARGS__, 0)
#define NOPAL_FORMAT_(format, ...) "" format

/* Never called. */
NOPAL_C_LINKAGE void nopal_format_fits(const char *format, ...) __attribute__((format(printf, 1, 2)));

#ifdef __clang__
#define NOPAL_ALLOW_BYTES _Pragma("GCC diagnostic ignored \"-Wformat-pedantic\"")
#else
#define NOPAL_ALLOW_BYTES
#endif

#define NOPAL_CHECK(...)                                                                                               \
	_Pragma("GCC diagnostic push") NOPAL_ALLOW_BYTES _Pragma("GCC diagnostic error \"-Wformat\"")                                    \
	_Pragma("GCC diagnostic error \"-Wformat-extra-args\"")                                                        \
	if (0)                                                                                                         \
		nopal_format_fits(" " NOPAL_FORMAT(__VA_ARGS__) NOPAL_EACH(NOPAL_PRINTABLE, __VA_ARGS__));                 \
	_Pragma("GCC diagnostic pop")

/* ---- Markers ---- */

#ifdef NOPAL_OFF

#define NOPAL_MARK(name, ...)                                                                                          \
	do {                                                                                                           \
		NOPAL_CHECK(__VA_ARGS__)                                                                               \
	} while (0)
#define NOPAL_MARK_GENERIC NOPAL_MARK

#elif defined(__KERNEL__)

#define NOPAL_MARK(name_, ...)                                                                                         \
	({                                                                                                             \
		static struct nopal_marker nopal_here = {                                                              \
			.key = STATIC_KEY_FALSE_INIT,                                                                  \
			.magic = NOPAL_MARKER_MAGIC,                                                                   \
			.name = #name_,                                                                                \
			.format = NOPAL_FORMAT(__VA_ARGS__),                                                           \
			.file = __FILE__,                                                                              \
			.line = __LINE__,                                                                              \
			.types = { NOPAL_TYPES_LOW(__VA_ARGS__), NOPAL_TYPES_HIGH(__VA_ARGS__) },                      \
		};                                                                                                     \
		NOPAL_CHECK(__VA_ARGS__)                                                                               \
		if (static_branch_unlikely(&nopal_here.key))                                                           \
			NOPAL_WITH_VALUES(nopal_call(&nopal_here, nopal_values), __VA_ARGS__);                         \
	})
/* A jump label is for all code. */
#define NOPAL_MARK_GENERIC NOPAL_MARK

static inline void nopal_call(struct nopal_marker *marker, const uint64_t *values)
{
	/* Pairs with the release by which the host stores it, after what the marker needs. */
	void (*call)(struct nopal_marker *, const uint64_t *) = smp_load_acquire(&marker->call);
	if (call)
		call(marker, values);
}

#else

#define NOPAL_MARK(name, ...) NOPAL_MARK_AT(NOPAL_PATCHED, NOPAL_PLACE_PATCHED, NOPAL_WITH_VALUES, #name, __VA_ARGS__)
#define NOPAL_MARK_GENERIC(name, ...) NOPAL_MARK_AT(NOPAL_TESTED, NOPAL_PLACE_TESTED, NOPAL_WITH_VALUES, #name, __VA_ARGS__)

/* The fill before the NOP is of prefixes without effect: NOP and fill are one instruction, and so are the jump that
 * takes the NOP's place and the fill. */
#define NOPAL_PATCHED                                                                                                  \
	".p2align 1, 0x2e\n\t"                                                                                         \
	".p2align 3, 0x2e, 4\n"                                                                                        \
	"7701:\t.byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n\t"

#define NOPAL_TESTED                                                                                                   \
	".pushsection .bss.nopal, \"aw?\", @nobits\n"                                                                  \
	".balign 8\n"                                                                                                 \
	"7701:\t.zero 8\n\t"                                                                                          \
	".popsection\n\t"                                                                                             \
	"cmpb $0, 7701b(%%rip)\n\t"                                                                                   \
	"jne %l[nopal_on]\n\t"

/* In a section of the same group as the code, so that the linker keeps both or drops both. */
#define NOPAL_NOTE(type, fields)                                                                                       \
	".pushsection .note.nopal, \"a?\", @note\n\t"                                                                 \
	".balign 4\n\t"                                                                                               \
	".long 6, 7703f - 7702f, " NOPAL_TEXT(type) "\n\t"                                                            \
	".asciz \"nopal\"\n\t"                                                                                        \
	".balign 4\n"                                                                                                 \
	"7702:\t.long " fields "\n"                                                                                   \
	"7703:\n\t"                                                                                                   \
	".popsection\n\t"

/* Once in a file with markers: announces the file to libnopal, if the program has it, before the file's own code
 * runs. */
#define NOPAL_ANNOUNCE                                                                                                 \
	".ifndef .Lnopal_announced\n\t"                                                                                \
	".set .Lnopal_announced, 1\n\t"                                                                                \
	".weak nopal_loaded\n\t"                                                                                       \
	".pushsection .text.nopal_announce, \"axG\", @progbits, nopal_announce, comdat\n"                              \
	"7706:\tendbr64\n\t"                                                                                          \
	"mov nopal_loaded@GOTPCREL(%%rip), %%rax\n\t"                                                                 \
	"test %%rax, %%rax\n\t"                                                                                       \
	"jz 7707f\n\t"                                                                                                \
	"jmp *%%rax\n"                                                                                                \
	"7707:\tret\n\t"                                                                                             \
	".popsection\n\t"                                                                                             \
	".pushsection .init_array.00101, \"awG\", @init_array, nopal_announce, comdat\n\t"                            \
	".balign 8\n\t"                                                                                               \
	".quad 7706b\n\t"                                                                                             \
	".popsection\n\t"                                                                                             \
	".endif\n\t"

/* The call would overwrite the eight bytes below the stack pointer, where a leaf function may keep something. */
#define NOPAL_MARK_AT(code, kind_, with, name_, ...)                                                                   \
	NOPAL_BEGIN                                                                                                    \
		__label__ nopal_on;                                                                                    \
		NOPAL_CHECK(__VA_ARGS__)                                                                               \
		__asm__ goto(code NOPAL_NOTE(NOPAL_NOTE_PLACE, "7701b - ., %l[nopal_on] - ., %c[name] - ., "           \
								 "%c[file] - ., %c[line], %c[kind]")                   \
			     :                                                                                         \
			     : [name] "i"(name_), [file] "i"(__FILE__), [line] "i"(__LINE__), [kind] "i"(kind_)        \
			     : "cc"                                                                                    \
			     : nopal_on);                                                                              \
		if (0) {                                                                                               \
		nopal_on:                                                                                              \
			NOPAL_COLD                                                                                     \
			with(NOPAL_CALL(name_, __VA_ARGS__), __VA_ARGS__);                                             \
		}                                                                                                      \
	NOPAL_END

/* The values may be in any register, so that compilers do not keep them out of %rax, in which functions return. */
#define NOPAL_CALL(name_, ...)                                                                                         \
	__asm__ volatile("mov -8(%%rsp), %%r10\n\t"                                                                   \
			 "lea 7704f(%%rip), %%r11\n\t"                                                                \
			 "xchg %%rax, %[values]\n\t"                                                                  \
			 "call *(%%r11)\n\t"                                                                          \
			 "xchg %%rax, %[values]\n\t"                                                                  \
			 "mov %%r10, -8(%%rsp)\n\t"                                                                   \
			 ".byte 0x0f, 0x1f, 0x40\n" /* a NOP whose last byte is a ret */                              \
			 "7705:\t.byte 0xc3\n\t"                                                                      \
			 ".pushsection .bss.nopal, \"aw?\", @nobits\n\t"                                              \
			 ".balign 8\n"                                                                                \
			 "7704:\t.zero 40\n\t"                                                                        \
			 ".popsection\n\t" NOPAL_ANNOUNCE NOPAL_NOTE(NOPAL_NOTE_MARKER, "7704b - ., 7705b - ., %c[name] - ., "        \
									  "%c[format] - ., %c[file] - ., %c[line], "   \
									  "%c[low], %c[high]")                         \
			 :                                                                                             \
			 : [values] "r"(nopal_values), [name] "i"(name_), [format] "i"(NOPAL_FORMAT(__VA_ARGS__)),              \
			   [file] "i"(__FILE__), [line] "i"(__LINE__), [low] "i"(NOPAL_TYPES_LOW(__VA_ARGS__)),        \
			   [high] "i"(NOPAL_TYPES_HIGH(__VA_ARGS__))                                                   \
			 : "r10", "r11", "cc", "memory")

/* clang before 17 takes every label of a function for a target of each asm goto in it, and so complains of jumps over
 * the variables between two markers. A marker in a function of its own is safe from that. */
#if defined(__cplusplus) && defined(__clang__) && __clang_major__ < 17
#define NOPAL_BEGIN __extension__([&]() __attribute__((always_inline)) {
#define NOPAL_END }())
#else
#define NOPAL_BEGIN __extension__({
#define NOPAL_END })
#endif

#ifdef __clang__
#define NOPAL_COLD
#else
#define NOPAL_COLD __attribute__((__cold__));
#endif

#endif
#endif
