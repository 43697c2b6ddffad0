// Exceptions through frames whose call is the last instruction that a jump displaces.
#include <stdexcept>
#include <string>
#include <vector>

typedef unsigned long u64;

struct Guard {
	u64 &count;
	~Guard() { count += 7; }
};

__attribute__((noinline)) void thrower(u64 value)
{
	if (value % 3 == 0)
		throw std::runtime_error(std::to_string(value));
	if (value % 3 == 1)
		throw value;
}

__attribute__((noinline)) u64 catcher(u64 value)
{
	try {
		thrower(value);
		return 1;
	} catch (const std::runtime_error &error) {
		return error.what()[0];
	} catch (u64 caught) {
		return caught + 2;
	}
}

__attribute__((noinline)) void passes(u64 value) { thrower(value); thrower(value + 1); }

__attribute__((noinline)) u64 guarded(u64 value, u64 &count)
{
	Guard guard{count};
	passes(value);
	return value;
}

struct Shape {
	virtual ~Shape() {}
	virtual u64 area() const = 0;
};
struct Square : Shape {
	u64 side;
	explicit Square(u64 s) : side(s) {}
	u64 area() const override { return side * side; }
};
struct Odd : Shape {
	u64 side;
	explicit Odd(u64 s) : side(s) {}
	u64 area() const override { thrower(side); return side; }
};

extern "C" u64 run(u64 seed)
{
	u64 result = seed, count = 0;
	std::vector<Shape *> shapes;
	for (u64 i = 0; i < 30; i++) {
		result = result * 31 + catcher(seed % 1000 + i);
		try {
			result += guarded(seed % 1000 + i, count);
		} catch (u64 caught) {
			result ^= caught << 5;
		} catch (const std::exception &error) {
			result += std::string(error.what()).size();
		}
		shapes.push_back(i % 2 ? static_cast<Shape *>(new Square(i)) : new Odd(i));
	}
	for (Shape *shape : shapes) {
		try {
			result += shape->area();
		} catch (...) {
			result *= 3;
		}
		delete shape;
	}
	return result + count;
}
