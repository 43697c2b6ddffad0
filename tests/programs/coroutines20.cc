/* Coroutines of C++20, which live on the heap, are resumed from different threads, and end by exceptions. */
#include "hard.h"
#include <coroutine>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

// calls: 3000 step

extern "C" KEPT long step(long n)
{
	EFFECT();
	return n + 1;
}

struct Task {
	struct promise_type {
		long value = 0;
		std::exception_ptr failure;
		Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
		std::suspend_always initial_suspend() noexcept { return {}; }
		std::suspend_always final_suspend() noexcept { return {}; }
		std::suspend_always yield_value(long v)
		{
			value = v;
			return {};
		}
		void return_void() {}
		void unhandled_exception() { failure = std::current_exception(); }
	};
	std::coroutine_handle<promise_type> handle;
};

static Task count(long from, bool fails)
{
	for (long i = 0; i < 10; i++)
		co_yield step(from + i);
	if (fails)
		throw std::runtime_error("enough");
}

int main()
{
	std::vector<Task> tasks;
	for (long i = 0; i < 300; i++)
		tasks.push_back(count(i * 10, i % 3 == 0));
	long sum = 0, failed = 0;
	for (int round = 0; round < 11; round++) {
		auto resume = [&] {
			for (auto &task : tasks) {
				if (task.handle.done())
					continue;
				task.handle.resume();
				if (!task.handle.done())
					sum += task.handle.promise().value;
			}
		};
		if (round % 2)
			std::thread(resume).join();
		else
			resume();
	}
	for (auto &task : tasks) {
		try {
			if (task.handle.promise().failure)
				std::rethrow_exception(task.handle.promise().failure);
		} catch (const std::runtime_error &) {
			failed++;
		}
		task.handle.destroy();
	}
	printf("sum %ld, failed %ld\n", sum, failed);
	return 0;
}
