//! x86-64.

pub(crate) mod loader;
mod registers;
pub(crate) mod rest;
mod signal_frame;

pub use registers::Registers;
pub(crate) use signal_frame::SignalFrame;

/// `syscall`
pub(crate) const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// `syscall`, `int $0x80`, `sysenter`: a call that is repeated begins at the first byte.
pub(crate) const SYSTEM_CALLS: [[u8; 2]; 3] = [SYSTEM_CALL, [0xcd, 0x80], [0x0f, 0x34]];
pub(crate) const SYSTEM_CALL_AND_RETURN: [u8; 3] = [0x0f, 0x05, 0xc3];
/// `mov $15, %rax; syscall` as libraries have it, and `mov $15, %eax; syscall`.
pub(crate) const RESTORERS: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 15, 0, 0, 0, 0x0f, 0x05],
];
/// Bytes of the longest of these.
pub(crate) const LONGEST_OF_GADGET: usize = 9;

/// Bytes of `call` with an operand in memory, but for prefixes.
pub(crate) const LONGEST_COMPUTED_CALL: usize = 7;

/// Whether the last bytes are a `call` with an operand in a register or in memory: its opcode, a byte that names the
/// operand, and what belongs to that.
pub(crate) fn ends_with_computed_call(code: &[u8]) -> bool {
    code.array_windows()
        .enumerate()
        .any(|(index, &[opcode, operand])| {
            let scaled = usize::from(operand >> 6 != 3 && operand & 7 == 4);
            let distance = match operand >> 6 {
                0 if operand & 7 == 5 => 4,
                1 => 1,
                2 => 4,
                _ => 0,
            };
            opcode == 0xff && operand & 0x38 == 0x10 && index + 2 + scaled + distance == code.len()
        })
}

/// The register set of the extended state: `NT_X86_XSTATE`.
pub(crate) const EXTENDED_STATE: usize = 0x202;

/// The offset at which `ptrace` has the status of a thread's last debug exception. The kernel keeps all its bits until
/// there is one.
pub(crate) const DEBUG_STATUS: usize = std::mem::offset_of!(libc::user, u_debugreg) + 6 * 8;
