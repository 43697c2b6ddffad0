// Structures in structures, in arrays and behind pointers, some of which are invalid. Valid as C++ for bases and
// references, which C lacks.
#include <cstdio>

enum state { idle, busy = 4, done };

struct inner {
	struct inner *next;
	int length;
	short values[3];
	unsigned char grid[2][4];
	union {
		int whole;
		char parts[4];
	};
	unsigned flag : 3;
	struct {
		long first;
	} pair[2];
};

struct base {
	long origin;
};

struct request : base {
	const char *name;
	enum state state;
	struct inner own;
	struct inner *head;
	struct inner **all;
	void *nothing;
	char kind[8];
	static int count;
};
int request::count = 0;

struct small {
	int low, high;
};

struct request global;
volatile long sink;

__attribute__((noinline, used)) void pass(struct request *request, struct request &same, struct small small, unsigned n)
{
	sink += n; // here
	sink += request->origin + same.own.length + small.high + small.low;
	sink += (long)request->nothing + request->own.flag;
}

int main()
{
	static struct inner last = { nullptr, -3, { 1, -2, 3 }, { { 1, 2, 3, 4 }, { 5, 6, 7, 250 } }, { 0x44434241 }, 5, { { 8 }, { 9 } } };
	static struct inner first = last;
	static struct inner *all[] = { &last, &first };
	first.next = &last;
	first.length = 7;
	global.origin = 1000;
	global.name = "a name";
	global.state = busy;
	global.own = last;
	global.head = &first;
	global.all = all;
	global.nothing = nullptr;
	snprintf(global.kind, sizeof global.kind, "kind");
	for (unsigned n = 0; n < 5; n++) {
		struct small small = { (int)n, -(int)n };
		global.own.length = (int)n;
		if (n == 3)
			first.next = (struct inner *)0x10;      // leads nowhere from here on
		pass(&global, global, small, n);
	}
	printf("%ld\n", sink);
}
