// A C++ program of the ordinary kind: virtual calls, templates, lambdas, containers, streams.
#include "hard.h"
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

// calls: 300 geometry::Square::area() const
// calls: 300 geometry::Circle::area() const
// calls: 600 geometry::total(std::vector<std::unique_ptr<geometry::Shape, std::default_delete<geometry::Shape> >, std::allocator<std::unique_ptr<geometry::Shape, std::default_delete<geometry::Shape> > > > const&)
// calls: 50 long twice<long>(long)
// calls: 20 double twice<double>(double)
// calls: 77 apply(std::function<int (int)> const&, int)

namespace geometry {
struct Shape {
	virtual ~Shape() = default;
	virtual double area() const = 0;
};

struct Square : Shape {
	KEPT double area() const override { return 4; }
};

struct Circle : Shape {
	KEPT double area() const override { return 3.14; }
};

KEPT double total(const std::vector<std::unique_ptr<Shape>> &shapes)
{
	double sum = 0;
	for (const auto &shape : shapes)
		sum += shape->area();
	return sum;
}
}

template <typename T> KEPT T twice(T value) { return value + value; }

KEPT static int apply(const std::function<int(int)> &function, int n) { return function(n); }

int main()
{
	std::vector<std::unique_ptr<geometry::Shape>> shapes;
	double sum = 0;
	for (int i = 0; i < 600; i++) {
		shapes.clear();
		if (i % 2)
			shapes.push_back(std::make_unique<geometry::Square>());
		else
			shapes.push_back(std::make_unique<geometry::Circle>());
		sum += geometry::total(shapes);
	}
	std::cout << "area " << sum << std::endl;
	long number = 0;
	for (long i = 0; i < 50; i++)
		number += twice(i);
	for (int i = 0; i < 20; i++)
		sum += twice(0.5);
	std::map<std::string, int> words;
	std::istringstream text("the quick brown fox jumps over the lazy dog and the cat");
	for (std::string word; text >> word;)
		words[word]++;
	std::vector<std::pair<std::string, int>> sorted(words.begin(), words.end());
	std::stable_sort(sorted.begin(), sorted.end(), [](const auto &a, const auto &b) { return a.second > b.second; });
	std::cout << sorted[0].first << ' ' << sorted[0].second << ' ' << number << ' ' << sum << '\n';
	int applied = 0;
	for (int i = 0; i < 77; i++)
		applied = apply([i](int n) { return n + i; }, applied);
	std::cout << "applied " << applied << std::endl;
	return 0;
}
