//! Code by which a thread makes its system call for the rest of a transfer, and goes on as behind its own call.

use super::Registers;

/// The stack pointer leads to a [`frame`]. The code begins with the call, which the kernel repeats in place.
pub(crate) const REST: [u8; 62] = [
    0x0f, 0x05, // syscall
    0x48, 0x83, 0xf8, 0xfc, // cmp $-EINTR, %rax: a handler, which ends a transfer
    0x75, 0x02, // jne 1f
    0x31, 0xc0, // xor %eax, %eax
    0x48, 0x85, 0xc0, // 1: test %rax, %rax
    0x78, 0x04, // js 2f: other errors may be given once only, and are returned
    0x48, 0x03, 0x04, 0x24, // add (%rsp), %rax
    0x48, 0x8b, 0x7c, 0x24, 0x40, // 2: mov 64(%rsp), %rdi
    0x48, 0x8b, 0x74, 0x24, 0x08, // mov 8(%rsp), %rsi
    0x48, 0x8b, 0x54, 0x24, 0x10, // mov 16(%rsp), %rdx
    0x4c, 0x8b, 0x54, 0x24, 0x18, // mov 24(%rsp), %r10
    0x48, 0x8b, 0x4c, 0x24, 0x20, // mov 32(%rsp), %rcx
    0x4c, 0x8b, 0x5c, 0x24, 0x28, // mov 40(%rsp), %r11
    0xff, 0x74, 0x24, 0x28, // push 40(%rsp)
    0x9d, // popf
    0x48, 0x8b, 0x64, 0x24, 0x38, // mov 56(%rsp), %rsp
    0x3e, 0xff, 0xe1, // notrack jmp *%rcx
];

/// The offset at which an interrupted thread stands: behind the call.
pub(crate) const BEHIND_CALL: u64 = 2;

/// In words.
pub(crate) const FRAME: usize = 9;

/// The words that the code takes from the stack, for a thread that has `returned` from its call with a part of the
/// bytes. Address, flags and segment follow one another as in the frame of a handler: a search for code that a thread will
/// return to finds the address by that.
pub(crate) fn frame(returned: &Registers) -> [u64; FRAME] {
    let it = &returned.0;
    // A call leaves where it returns to, and the flags, in %rcx and %r11.
    [
        it.rax, it.rsi, it.rdx, it.r10, it.rip, it.eflags, it.cs, it.rsp, it.rdi,
    ]
}

/// The registers as if the thread had returned from its own call with all bytes so far: it stands behind the call in the
/// code, which has a result.
pub(crate) fn returned(inside: &Registers, frame: [u64; FRAME]) -> Registers {
    let mut registers = *inside;
    let it = &mut registers.0;
    let done;
    [
        done,
        it.rsi,
        it.rdx,
        it.r10,
        it.rip,
        it.eflags,
        _,
        it.rsp,
        it.rdi,
    ] = frame;
    it.rax = done.wrapping_add(it.rax);
    (it.rcx, it.r11) = (it.rip, it.eflags);
    registers
}
