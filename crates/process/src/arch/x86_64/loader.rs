//! Code that takes the place of a function of the loader, so that a tracer sees its calls.

use std::ops::Range;

/// Calls in place of a function that only returns, and its padding: a tracer sees them, and a thread that is not traced
/// any more goes on. All are as long.
pub(crate) const ROOM: usize = 14;
/// `kill` of the own process, with a signal that does nothing. A tracer sees it, even if it is ignored. Like
/// any function, it may change `%rax`, `%rcx`, `%rdi`, `%rsi` and `%r11`.
const SEND: [u8; ROOM] = [
    0x6a,
    libc::SYS_kill as u8,
    0x58,
    0xbf,
    0,
    0,
    0,
    0,
    0x6a,
    0,
    0x5e,
    0x0f,
    0x05,
    0xc3,
];
/// The places of the process and of the signal in it, and of the end of its `syscall`.
const PROCESS: Range<usize> = 4..8;
const SIGNAL: usize = 9;
pub(crate) const BEHIND_SENDING: u64 = 13;
/// A call that changes nothing, where no such signal would be seen. It is seen with all calls of the loader. Pushes
/// and pops are of `%rax`, `%rcx` and `%r11`, which a call changes.
pub(crate) const CALL: [u8; ROOM] = [
    0x50,
    0x51,
    0x41,
    0x53,
    0x6a,
    libc::SYS_getpid as u8,
    0x58,
    0x0f,
    0x05,
    0x41,
    0x5b,
    0x59,
    0x58,
    0xc3,
];
pub(crate) const PUSHED: usize = 3;
pub(crate) const BEHIND_CALL: u64 = 9;
/// For a function without room for a call. It kills the program if we are killed before it is met.
pub(crate) const BREAKPOINT: [u8; 1] = [0xcc];
pub(crate) const BEHIND_BREAKPOINT: u64 = 1;

/// The code by which `process` sends itself a signal.
pub(crate) fn sending_code(process: i32, signal: i32) -> [u8; ROOM] {
    let mut code = SEND;
    code[PROCESS].copy_from_slice(&process.to_le_bytes());
    code[SIGNAL] = signal as u8;
    code
}

/// Whether code is that of a function that does nothing, and padding.
pub(crate) fn only_returns(code: &[u8]) -> bool {
    const BRANCH_TARGET: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let code = code.strip_prefix(&BRANCH_TARGET).unwrap_or(code);
    let Some(mut padding) = code.strip_prefix(&[0xc3]) else {
        return false;
    };
    while let [first, rest @ ..] = padding {
        let length = match (first, rest) {
            (0x66 | 0x2e | 0x90 | 0xcc, _) => 1,
            // The last instruction may go on behind the bytes that were read.
            (0x0f, []) => 1,
            (0x0f, [0x1f]) => 2,
            (0x0f, [0x1f, mode, ..]) => match mode {
                0x00 => 3,
                0x40 => 4,
                0x44 => 5,
                0x80 => 7,
                0x84 => 8,
                _ => return false,
            },
            _ => return false,
        };
        padding = padding.get(length..).unwrap_or_default();
    }
    true
}
