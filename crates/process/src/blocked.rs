//! Threads that wait in the kernel and do not stop, examined without stopping them.

use crate::information::{contents, thread_status};

const SYS_CLONE3: i64 = 435;
const KCMP_VM: i32 = 1;

/// Where a waiting thread entered the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    /// Number of the system call; negative outside of one.
    pub number: i64,
    /// The stack pointer.
    pub stack: u64,
    /// Behind the instruction that made the call.
    pub instruction: u64,
}

/// `None`: the thread runs, or has ended.
pub(crate) fn blocked(pid: i32, tid: i32) -> Option<Blocked> {
    let text = contents(&format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let text = str::from_utf8(&text).ok()?;
    // The number, its six arguments unless it is negative, the stack pointer, the instruction pointer.
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut address = || u64::from_str_radix(words.next_back()?.strip_prefix("0x")?, 16).ok();
    let (instruction, stack) = (address()?, address()?);
    Some(Blocked {
        number,
        stack,
        instruction,
    })
}

/// The `vfork` children for which the thread waits, which run in its memory.
pub(crate) fn vfork_children(pid: i32, tid: i32) -> Vec<i32> {
    let creates = [libc::SYS_vfork, libc::SYS_clone, SYS_CLONE3];
    let waits = blocked(pid, tid).is_some_and(|blocked| creates.contains(&blocked.number));
    if !waits {
        return Vec::new();
    }
    children(pid, tid)
        .split_ascii_whitespace()
        .filter_map(|child| child.parse().ok())
        .filter(|&child| share_memory(pid, child))
        .filter(|&child| thread_status(child, child).is_ok_and(|status| !status.is_dead()))
        .collect()
}

/// Whether a child's end signals this thread.
pub(crate) fn has_children(pid: i32, tid: i32) -> bool {
    !children(pid, tid).is_empty()
}

fn children(pid: i32, tid: i32) -> String {
    let text = contents(&format!("/proc/{pid}/task/{tid}/children"));
    String::from_utf8(text.unwrap_or_default()).unwrap_or_default()
}

/// Whether two processes run in the same memory.
pub fn share_memory(one: i32, other: i32) -> bool {
    // SAFETY: compares, and takes numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0 }
}
