// Input for a compiler: headers, templates, lambdas, exceptions.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

template <int N> struct Sum {
	static constexpr long value = N + Sum<N - 1>::value;
};
template <> struct Sum<0> {
	static constexpr long value = 0;
};

template <typename... Parts> std::string joined(const Parts &...parts)
{
	std::string text;
	((text += parts, text += ' '), ...);
	return text;
}

std::map<std::string, std::vector<std::tuple<int, double>>> gathered(const std::vector<std::string> &words)
{
	std::map<std::string, std::vector<std::tuple<int, double>>> found;
	std::regex pattern("([a-z]+)([0-9]*)");
	for (const auto &word : words) {
		std::smatch match;
		if (std::regex_match(word, match, pattern))
			found[match[1]].emplace_back(match[2].length(), Sum<300>::value);
		else
			throw std::runtime_error(joined(word, std::string("is no word")));
	}
	for (auto &[name, parts] : found)
		std::sort(parts.begin(), parts.end(), [](auto &a, auto &b) { return std::get<0>(a) < std::get<0>(b); });
	return found;
}
