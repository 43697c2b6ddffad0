// Long names of C++, and names that differ only in their parameters.
#include <map>
#include <memory>
#include <string>
#include <vector>

#define KEPT __attribute__((noipa))

namespace app {

template <int N>
KEPT int fib() {
    if constexpr (N < 2)
        return N;
    else
        return fib<N - 1>() + fib<N - 2>();
}

namespace detail {
template <class T, class Allocator = std::allocator<T>>
struct Store {
    std::vector<T, Allocator> all;
    KEPT void put(const T &one) { all.push_back(one); }
};
}  // namespace detail

KEPT std::string join(const std::map<std::string, int> &counts, char between) {
    std::string text;
    for (auto &one : counts) text += one.first + between;
    return text;
}

KEPT int twice(int number) { return number * 1001 % 1000; }
KEPT double twice(double number) { return number * 2; }

struct Shape {
    virtual ~Shape() = default;
    virtual int area() const = 0;
};
struct Square : Shape {
    int side = 3;
    KEPT int area() const override { return side * side; }
};

std::unique_ptr<Shape> shape = std::make_unique<Square>();

}  // namespace app

int main() {
    app::detail::Store<std::string> store;
    store.put("one");
    auto joined = app::join({{"a", 1}, {"b", 2}}, ',');
    int sum = app::fib<5>() + app::twice(4) + int(app::twice(0.5)) + app::shape->area();
    return sum + int(joined.size()) - 5 - 4 - 1 - 9 - 4;
}
