/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The work of a resident program, in C++: objects with virtual functions, containers, strings, closures and exceptions.
 */
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Shape {
	virtual ~Shape() = default;
	virtual long area() const = 0;
};

struct Square : Shape {
	long side;
	explicit Square(long side) : side(side) {}
	long area() const override { return side * side; }
};

struct Rectangle : Shape {
	long width, height;
	Rectangle(long width, long height) : width(width), height(height) {}
	long area() const override
	{
		if (height == 0)
			throw std::domain_error("flat");
		return width * height;
	}
};

using Shapes = std::vector<std::unique_ptr<Shape>>;

static long total(const Shapes &shapes, const std::function<bool(long)> &wanted)
{
	long sum = 0;
	for (const auto &shape : shapes) {
		long area = shape->area();
		if (wanted(area))
			sum += area;
	}
	return sum;
}

extern "C" void *start_work(void) { return new std::map<std::string, long>; }

extern "C" void work(void *own)
{
	auto &sums = *static_cast<std::map<std::string, long> *>(own);
	sums.clear();
	Shapes shapes;
	for (long i = 0; i < 100; i++) {
		if (i % 3)
			shapes.push_back(std::make_unique<Square>(i));
		else
			shapes.push_back(std::make_unique<Rectangle>(i, i % 50 + 1));
	}
	std::sort(shapes.begin(), shapes.end(), [](const auto &one, const auto &other) { return one->area() < other->area(); });
	for (long i = 0; i < 50; i++)
		sums["name " + std::to_string(i % 20)] += total(shapes, [i](long area) { return area % 50 == i; });
	try {
		sums["flat"] = Rectangle(1, 0).area();
	} catch (const std::domain_error &error) {
		sums[error.what()]++;
	}
}
