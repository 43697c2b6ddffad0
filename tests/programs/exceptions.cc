// C++ exceptions: through recursion with destructors, thrown again, moved to another thread, out of constructors,
// through a library, through a C function's callback, and caught by type on the way.
#include "hard.h"
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

// calls: 20250 descend(int)
// calls: 20000 Guard::~Guard()
// calls: 1300 again(int)
// calls: 300 middle(int)
// calls: 300 innermost(int)
// calls: 100 Part::Part(int)
// calls: 50 Part::~Part()
// calls: 40 callback(void const*, void const*)
// calls: 50 in_thread(std::__exception_ptr::exception_ptr&)
// calls: 30 nested(int)
// calls: 1000 thrower(int)

static long destroyed;

KEPT int leaf(int n)
{
	EFFECT();
	return n + 1;
}

struct Guard {
	KEPT ~Guard() { destroyed++; }
};

KEPT static int descend(int left)
{
	if (left == 0)
		throw std::runtime_error("deep");
	Guard guard;
	return RETURNED(descend(left - 1)) + 1;
}

// Rethrows at each of ten levels.
KEPT static int again(int left)
{
	try {
		if (left == 0)
			throw left;
		return RETURNED(again(left - 1)) + 1;
	} catch (int &value) {
		value++;
		throw;
	}
}

KEPT static int innermost(int n)
{
	switch (n % 3) {
	case 0: throw n;
	case 1: throw std::string("text");
	default: throw std::out_of_range("range");
	}
}

KEPT static int middle(int n)
{
	try {
		return innermost(n);
	} catch (const std::string &text) {
		return static_cast<int>(text.size());
	} catch (const std::logic_error &) {
		return -1;
	}
}

struct Part {
	int n;
	KEPT explicit Part(int n) : n(n)
	{
		if (n == 1)
			throw std::bad_alloc();
	}
	KEPT ~Part() { destroyed++; }
};

struct Whole {
	Part first{0}, second{1};
};

KEPT static int callback(const void *, const void *) { throw 'q'; }

KEPT static void in_thread(std::exception_ptr &out)
{
	try {
		descend(0);
	} catch (...) {
		out = std::current_exception();
	}
}

// Throws and catches while another exception is on its way.
KEPT static int nested(int n)
{
	struct Cleanup {
		int n;
		~Cleanup()
		{
			try {
				again(9);
			} catch (int value) {
				CHECK(value == 10);
			}
		}
	} cleanup{n};
	throw n;
}

extern "C" int throws_through(int (*inner)(int), int n);

KEPT static int thrower(int n)
{
	throw std::to_string(n);
}

int main()
{
	for (int i = 0; i < 200; i++)
		try {
			descend(100);
			CHECK(!"past the throw");
		} catch (const std::runtime_error &error) {
			CHECK(std::string(error.what()) == "deep");
			leaf(i);
		}
	printf("destroyed %ld\n", destroyed);

	for (int i = 0; i < 100; i++)
		try {
			again(9);
		} catch (int value) {
			CHECK(value == 10);
			leaf(i);
		}
	int caught = 0, sum = 0;
	for (int i = 0; i < 300; i++)
		try {
			sum += middle(i);
		} catch (int value) {
			CHECK(value == i);
			caught += leaf(0);
		}
	printf("caught %d sum %d\n", caught, sum);

	destroyed = 0;
	for (int i = 0; i < 50; i++)
		try {
			Whole whole;
		} catch (const std::bad_alloc &) {
			leaf(i);
		}
	printf("parts destroyed %ld\n", destroyed);

	caught = 0;
	for (int i = 0; i < 40; i++)
		try {
			int values[] = {2, 1};
			qsort(values, 2, sizeof *values, callback);
		} catch (char letter) {
			caught += leaf(letter) == 'q' + 1;
		}
	printf("through qsort %d\n", caught);

	caught = 0;
	for (int i = 0; i < 50; i++) {
		std::exception_ptr carried;
		std::thread thread(in_thread, std::ref(carried));
		thread.join();
		try {
			std::rethrow_exception(carried);
		} catch (const std::exception &error) {
			caught += leaf(0);
		}
	}
	printf("from threads %d\n", caught);

	caught = 0;
	for (int i = 0; i < 30; i++)
		try {
			nested(i);
		} catch (int value) {
			caught += leaf(value) == i + 1;
		}
	printf("while on the way %d\n", caught);

	caught = 0;
	for (int i = 0; i < 1000; i++)
		try {
			throws_through(thrower, i);
		} catch (const std::string &text) {
			caught += leaf(std::stoi(text)) == i + 1;
		}
	printf("through a library %d\n", caught);
	printf("calls: %d leaf(int)\n", 200 + 100 + 100 + 50 + 40 + 50 + 30 + 1000);
	return 0;
}
