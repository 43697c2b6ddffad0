// Methods and objects as parameters and results: each function prints its call as nopal must show it.
#include <cstdio>
#include <cstdint>
#include <string>
#include <utility>

#define KEPT __attribute__((noinline))

enum class Mode : uint8_t { off, slow = 5, fast = 200 };
struct Plain {
	int a;
	short b;
};
struct Copied {
	int a;
	explicit Copied(int a) : a(a) {}
	Copied(const Copied &other) : a(other.a + 1) {}
	~Copied() {}
};
struct Empty {};
struct Base {
	long kept = 1;
	virtual ~Base() {}
	KEPT virtual long work(int by)
	{
		printf("work(this=%p, by=%d) = %ld\n", (void *)this, by, kept + by);
		return kept + by;
	}
};
struct Derived : virtual Base {
	KEPT explicit Derived(long start)
	{
		printf("Derived(this=%p, start=%ld)\n", (void *)this, start);
		kept = start;
	}
	KEPT long work(int by) override
	{
		printf("work(this=%p, by=%d) = %ld\n", (void *)this, by, kept - by);
		return kept - by;
	}
};

namespace space {
KEPT int refer(const std::string &text, std::string &&moved, int &number)
{
	printf("refer(text=%p, moved=%p, number=%p) = %d\n", (void *)&text, (void *)&moved, (void *)&number,
	       (int)(text.size() + moved.size()) + number);
	return (int)(text.size() + moved.size()) + number;
}
}
KEPT Mode modes(Mode mode, bool is, char16_t letter, int8_t last)
{
	printf("modes(mode=%s, is=%s, letter='%c', last=%d) = fast\n", mode == Mode::slow ? "slow" : "off",
	       is ? "true" : "false", (char)letter, last);
	return Mode::fast;
}
KEPT int objects(Plain plain, Copied copied, Empty, std::string text, int last)
{
	printf("objects(plain={0x%lx}, copied=%p, {}, text=%p, last=%d) = %d\n",
	       (unsigned long)(unsigned)plain.a | (unsigned long)(uint16_t)plain.b << 32, (void *)&copied, (void *)&text,
	       last, copied.a);
	return copied.a;
}
KEPT std::string made(int number)
{
	printf("made(number=%d) = …\n", number);
	return std::to_string(number);
}
KEPT Copied copy(int number)
{
	printf("copy(number=%d) = …\n", number);
	return Copied(number);
}
template <class T> KEPT T twice(T value)
{
	printf("twice(value=%ld) = %ld\n", (long)value, 2 * (long)value);
	return 2 * value;
}
struct Counter {
	static KEPT int next(int from)
	{
		printf("next(from=%d) = %d\n", from, from + 1);
		return from + 1;
	}
	KEPT int get() const
	{
		printf("get(this=%p) = %d\n", (const void *)this, value);
		return value;
	}
	int value;
};
KEPT int pointers(int Counter::*member, int (Counter::*method)() const, std::nullptr_t, int last)
{
	long offset;
	__builtin_memcpy(&offset, &member, sizeof offset);
	unsigned long parts[2];
	__builtin_memcpy(parts, &method, sizeof parts);
	printf("pointers(member={0x%lx}, method={0x%lx, 0x%lx}, 0x0, last=%d) = %d\n", offset, parts[0], parts[1], last, last);
	return last;
}

int main()
{
	int number = 4;
	Derived derived(5);
	Base *base = &derived;
	base->work(6);
	Base other;
	base = &other;
	base->work(7);
	space::refer("text", std::string("moved"), number);
	modes(Mode::slow, true, u'k', -8);
	objects(Plain{ -9, -10 }, Copied(11), Empty(), "text", 12);
	made(13);
	copy(14);
	twice<int>(15);
	twice<int64_t>(-16);
	Counter::next(17);
	Counter counter{ 18 };
	counter.get();
	pointers(&Counter::value, &Counter::get, nullptr, 19);
	auto lambda = [number](int by) KEPT {
		printf("operator()(this=?, by=%d) = %d\n", by, number + by);
		return number + by;
	};
	lambda(20);
	return 0;
}
