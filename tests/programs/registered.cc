// Exceptions through code made at run time, whose unwind tables are registered with the unwinder.
#include "hard.h"
#include <cstring>
#include <stdexcept>
#include <sys/mman.h>

extern "C" void __register_frame(void *);
extern "C" void __deregister_frame(void *);

// sub $8, %rsp; movabs $TARGET, %rax; call *%rax; add $8, %rsp; ret
static const unsigned char CODE[] = {0x48, 0x83, 0xec, 8, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3};
static const unsigned char CIE[] = {20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0, 0, 0, 0, 0};
// The address and the length of the code are at 8 and 16; after the first instruction the frame has 16 bytes.
static const unsigned char FDE[] = {28, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, sizeof CODE, 0, 0, 0, 0, 0, 0, 0, 0x44, 0x0e, 16, 0, 0, 0, 0, 0};

KEPT static long throws(long n)
{
	EFFECT();
	if (n % 3 == 0)
		throw std::runtime_error("three");
	return n;
}

KEPT static long leaf(long n)
{
	EFFECT();
	return n + 1;
}

int main()
{
	auto code = static_cast<unsigned char *>(
	    mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	CHECK(code != MAP_FAILED);
	auto target = throws;
	std::memcpy(code, CODE, sizeof CODE);
	std::memcpy(code + 6, &target, sizeof target);
	unsigned char *rows = code + 1024;
	std::memcpy(rows, CIE, sizeof CIE);
	std::memcpy(rows + sizeof CIE, FDE, sizeof FDE);
	std::memcpy(rows + sizeof CIE + 8, &code, sizeof code);
	std::memset(rows + sizeof CIE + sizeof FDE, 0, 4);
	__register_frame(rows);
	auto generated = reinterpret_cast<long (*)(long)>(code);
	long sum = 0;
	for (int i = 0; i < 20000; i++) {
		try {
			sum += generated(i);
		} catch (const std::runtime_error &) {
			sum += leaf(1000);
		}
	}
	__deregister_frame(rows);
	printf("%ld\n", sum);
	return 18;
}
