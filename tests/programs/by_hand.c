/* Functions written by hand, under unknown names: they use their return addresses, leave by other ways than returning,
 * pass flags to each other, and are called with flags that C does not expect. */
#include "hard.h"
#include <string.h>

#define ROUNDS 500

// calls: 1000 mark
// calls: 500 mark_unwound
// calls: 500 mark_through
// calls: 3000 leap
// calls: 500 says
// calls: 500 say
// calls: 500 threaded
// calls: 1000 word_double
// calls: 500 word_add
// calls: 500 word_end
// calls: 500 enter_context
// calls: 500 through_return
// calls: 500 thunk_of_position
// calls: 500 aligned
// calls: 500 spare
// calls: 1000 by_table
// calls: 500 above
// calls: 500 flags_of
// calls: 1000 compare
// calls: 500 compare_further
// calls: 500 carry_in
// calls: 500 with_flags
// calls: 1001 quiet

#define FUNCTION(name, text)                                                                                         \
	__asm__(".text\n.globl " name "\n.type " name ", @function\n.p2align 4\n" name ":\n" text "\n.size " name    \
	        ", . - " name "\n")

/* Saves its return address, as setjmp does: by a move, by a pop, and after a jump from another function. */
#define SAVE_REST                                                                                                    \
	"mov %rbx, (%rdi)\n mov %rbp, 8(%rdi)\n mov %r12, 16(%rdi)\n mov %r13, 24(%rdi)\n mov %r14, 32(%rdi)\n"      \
	"mov %r15, 40(%rdi)\n"
int mark(void *) __attribute__((returns_twice));
FUNCTION("mark", SAVE_REST "lea 8(%rsp), %rdx\n mov %rdx, 48(%rdi)\n mov (%rsp), %rdx\n mov %rdx, 56(%rdi)\n"
                           "xor %eax, %eax\n ret");
int mark_unwound(void *) __attribute__((returns_twice));
FUNCTION("mark_unwound", ".cfi_startproc\n endbr64\n pop %rdx\n .cfi_def_cfa_offset 0\n" SAVE_REST
                         "mov %rsp, 48(%rdi)\n mov %rdx, 56(%rdi)\n xor %eax, %eax\n jmp *%rdx\n .cfi_endproc");
int mark_through(void *) __attribute__((returns_twice));
FUNCTION("mark_through", "mov %rdi, %rsi\n mov %rsi, %rdi\n jmp mark");
__attribute__((noreturn)) void leap(void *, int);
FUNCTION("leap", "mov %esi, %eax\n mov (%rdi), %rbx\n mov 8(%rdi), %rbp\n mov 16(%rdi), %r12\n mov 24(%rdi), %r13\n"
                 "mov 32(%rdi), %r14\n mov 40(%rdi), %r15\n mov 48(%rdi), %rsp\n jmp *56(%rdi)");

KEPT static void descend(void *where, int depth, int value)
{
	if (depth == 0)
		leap(where, value);
	descend(where, depth - 1, value);
	EFFECT();
}

static long marks(void)
{
	long sum = 0;
	for (volatile int i = 0; i < ROUNDS; i++) {
		void *where[8];
		volatile int times = 0;
		int value = mark(where);
		sum += value;
		if (++times < 3)
			descend(where, i % 7, i + times);
		times = 0;
		value = mark_unwound(where);
		sum += value;
		if (++times < 3)
			descend(where, i % 5, i + times);
		times = 0;
		value = mark_through(where);
		sum += value;
		if (++times < 3)
			descend(where, i % 3, i + times);
	}
	return sum;
}

/* The text follows the call. */
char said[64];
FUNCTION("say", "pop %rsi\n lea said(%rip), %rdi\n 1: lodsb\n stosb\n test %al, %al\n jnz 1b\n jmp *%rsi");
int says(void);
FUNCTION("says", "push %rbx\n call say\n .asciz \"behind the call\"\n mov $7, %eax\n pop %rbx\n ret");

/* Threaded code: each word ends with a jump to the next one; the last takes the return address of the first off the
 * stack. */
long threaded(long *, long);
FUNCTION("threaded", "mov %rsi, %rcx\n mov %rdi, %rsi\n lodsq\n jmp *%rax");
FUNCTION("word_double", "add %rcx, %rcx\n lodsq\n jmp *%rax");
FUNCTION("word_add", "lodsq\n add %rax, %rcx\n lodsq\n jmp *%rax");
FUNCTION("word_end", "pop %rdx\n mov %rcx, %rax\n jmp *%rdx");
extern char word_double[], word_add[], word_end[];

/* A transfer as in Boost's contexts. */
struct transfer {
	void *context;
	void *data;
};
struct transfer enter_context(void *context, void *data);
FUNCTION("enter_context",
         "lea -0x38(%rsp), %rsp\n stmxcsr (%rsp)\n fnstcw 4(%rsp)\n mov %r12, 8(%rsp)\n mov %r13, 0x10(%rsp)\n"
         "mov %r14, 0x18(%rsp)\n mov %r15, 0x20(%rsp)\n mov %rbx, 0x28(%rsp)\n mov %rbp, 0x30(%rsp)\n"
         "mov %rsp, %rax\n mov %rdi, %rsp\n mov 0x38(%rsp), %r8\n ldmxcsr (%rsp)\n fldcw 4(%rsp)\n"
         "mov 8(%rsp), %r12\n mov 0x10(%rsp), %r13\n mov 0x18(%rsp), %r14\n mov 0x20(%rsp), %r15\n"
         "mov 0x28(%rsp), %rbx\n mov 0x30(%rsp), %rbp\n lea 0x40(%rsp), %rsp\n mov %rsi, %rdx\n mov %rax, %rdi\n"
         "jmp *%r8");
long long contexts_sum;

__attribute__((used)) static void in_context(void *caller, void *data)
{
	for (;;) {
		contexts_sum += (long)data;
		struct transfer from = enter_context(caller, (void *)((long)data * 2));
		caller = from.context;
		data = from.data;
	}
}

FUNCTION("begin_context", "mov %rdx, %rsi\n push %rbp\n jmp in_context");

static long contexts(void)
{
	extern char begin_context[];
	char *stack = malloc(1 << 16);
	char *top = (char *)(((long)stack + (1 << 16)) & -16l) - 0x40;
	memset(top, 0, 0x40);
	unsigned mxcsr = 0x1f80;
	unsigned short control = 0x37f;
	memcpy(top, &mxcsr, 4);
	memcpy(top + 4, &control, 2);
	*(void **)(top + 0x38) = begin_context;
	struct transfer to = {top, NULL};
	long sum = 0;
	for (long i = 0; i < ROUNDS / 2; i++) {
		to = enter_context(to.context, (void *)i);
		sum += (long)to.data;
	}
	free(stack);
	return sum + contexts_sum;
}

/* A jump by a pushed address and a return; the own address by a call and a pop; a stack that is aligned, and found
 * again by a copy on it, or by a register; a computed jump; a look at an argument on the stack. All of these return in
 * the end as functions do. */
KEPT long plus_one(long n)
{
	return n + 1;
}
long through_return(long);
FUNCTION("through_return", "lea plus_one(%rip), %rax\n push %rax\n ret");
long thunk_of_position(void);
FUNCTION("thunk_of_position", "call 1f\n 1: pop %rax\n lea 1b(%rip), %rcx\n sub %rcx, %rax\n ret");
long aligned(long);
FUNCTION("aligned", "mov %rsp, %rax\n push %rbx\n push %rbp\n sub $0x48, %rsp\n and $-64, %rsp\n mov %rax, 0x18(%rsp)\n"
                    "mov %rdi, (%rsp)\n lea (%rdi,%rdi), %rbx\n add (%rsp), %rbx\n mov 0x18(%rsp), %rsi\n mov %rbx, %rax\n"
                    "mov -16(%rsi), %rbp\n mov -8(%rsi), %rbx\n lea (%rsi), %rsp\n ret");
long spare(long);
FUNCTION("spare", "push %rbp\n mov %rsp, %rbp\n mov %rdi, %rax\n and $0xf0, %eax\n sub %rax, %rsp\n mov %rdi, -8(%rsp)\n"
                  "mov -8(%rsp), %rax\n leave\n ret");
long by_table(long);
FUNCTION("by_table", "push %rbx\n lea 9f(%rip), %rdx\n movslq (%rdx,%rdi,4), %rax\n add %rdx, %rax\n jmp *%rax\n"
                     "1: mov $11, %eax\n pop %rbx\n ret\n 2: mov $12, %eax\n pop %rbx\n ret\n"
                     ".section .rodata\n .p2align 2\n 9: .long 1b - 9b, 2b - 9b\n .text");
long above(long, long, long, long, long, long, long);
FUNCTION("above", "mov 8(%rsp), %rax\n lea (%rax,%rdi), %rax\n ret");

/* Flags are results, also of a further jump, and arguments. */
FUNCTION("compare", "cmp %rsi, %rdi\n lea 1(%rdi), %rdi\n ret");
FUNCTION("compare_further", "mov %rdi, %rax\n nop\n nop\n jmp compare");
FUNCTION("carry_in", "adc %rsi, %rdi\n mov %rdi, %rax\n ret");
long flags_of(long, long);
FUNCTION("flags_of", "push %rbx\n mov $100, %ebx\n call compare\n jl 1f\n mov $200, %ebx\n jne 1f\n mov $300, %ebx\n"
                     "1: lea -1(%rdi), %rdi\n call compare_further\n jge 2f\n lea 7(%rbx), %rbx\n"
                     "2: cmp %rsi, %rdi\n call carry_in\n add %rbx, %rax\n pop %rbx\n ret");

/* The direction of strings, and a check of alignment, as the caller has set them. */
volatile int quietly;
KEPT __attribute__((used)) void quiet(void)
{
	quietly++;
}
char letters[] = "abc";
long with_flags(void);
FUNCTION("with_flags", "push %rbx\n std\n call quiet\n lea letters+1(%rip), %rsi\n mov %rsi, %rbx\n lodsb\n cld\n"
                       "sub %rsi, %rbx\n pushf\n orl $0x40000, (%rsp)\n popf\n call quiet\n test %eax, %eax\n pushf\n"
                       "pop %rax\n pushf\n andl $~0x40000, (%rsp)\n popf\n and $0x40000, %eax\n add %rbx, %rax\n"
                       "pop %rbx\n ret");

int main(void)
{
	printf("marks %ld\n", marks());
	long sum = 0;
	for (int i = 0; i < ROUNDS; i++) {
		said[0] = 0;
		sum += says() * (said[0] == 'b');
		long program[] = {(long)word_double, (long)word_add, i, (long)word_double, (long)word_end};
		sum += threaded(program, 3);
	}
	printf("words %ld %s\n", sum, said);
	printf("contexts %ld\n", contexts());
	sum = 0;
	for (int i = 0; i < ROUNDS; i++) {
		sum += through_return(i) + thunk_of_position() + aligned(i) + spare(i) + by_table(0) + by_table(1);
		sum += above(i, 0, 0, 0, 0, 0, 5);
	}
	printf("jumps %ld\n", sum);
	sum = 0;
	for (int i = 0; i < ROUNDS; i++)
		sum = (sum * 3 + flags_of(i % 7, i % 5)) % 1000003;
	printf("flags %ld\n", sum);
	sum = 0;
	for (int i = 0; i < ROUNDS; i++)
		sum += with_flags();
	quiet();
	printf("direction and alignment %ld\n", sum);
	return 0;
}
