/* A function in assembly that compares, keeps values below the stack pointer, and uses the flags and these values behind
 * the place of a probe, red_zone+0xf. A program may put instructions between both parts. */
long red_zone(long a, long b);

#define RED_ZONE_FLAGS \
	".globl red_zone\n.type red_zone, @function\n" \
	"red_zone: .cfi_startproc\n" \
	"	mov %rdi, -8(%rsp)\n" \
	"	mov %rsi, -128(%rsp)\n" \
	"	xor %ecx, %ecx\n" \
	"	sub %rsi, %rdi\n" \
	"	mov $0, %eax\n" \
	"	mov $0, %edx\n" \
	"	setl %al\n	setc %cl\n	lea (%rcx, %rax, 2), %rax\n" \
	"	seto %cl\n	lea (%rcx, %rax, 2), %rax\n" \
	"	setz %cl\n	lea (%rcx, %rax, 2), %rax\n" \
	"	setp %cl\n	lea (%rcx, %rax, 2), %rax\n"

#define RED_ZONE_RESULT \
	"	imul -8(%rsp), %rax\n" \
	"	add -128(%rsp), %rax\n" \
	"	ret\n"
