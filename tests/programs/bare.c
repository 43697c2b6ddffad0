/* A program without any libc: it says TIMES times that it is there, and ends with 3. */

static long call(long number, long first, long second, long third)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
	return result;
}

__attribute__((noinline)) static void say(const char *text, int length) { call(1, 1, (long)text, length); }

__attribute__((force_align_arg_pointer)) void _start(void)
{
	for (int i = 0; i < TIMES; i++)
		say("here\n", 5);
	call(231, 3, 0, 0);
}
