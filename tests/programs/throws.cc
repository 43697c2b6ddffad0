// Throws and catches.
#include <cstdio>

__attribute__((noinline)) static int caught(int n)
{
	try {
		if (n % 2)
			throw n;
		return 0;
	} catch (int thrown) {
		return thrown;
	}
}

int main()
{
	int sum = 0;
	for (int n = 0; n < 10; n++)
		sum += caught(n);
	std::printf("%d\n", sum);
	return 0;
}
