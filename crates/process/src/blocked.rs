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

impl Blocked {
    /// A thread that the kernel added to the process, as io_uring and vhost do, has never run an instruction of it.
    pub(crate) fn is_kernels(&self) -> bool {
        self.stack == 0 && self.instruction == 0
    }
}

/// Whether a thread runs instructions of the program, and not only the kernel's, as those of io_uring and vhost do. These
/// are not to be stopped: their work would be interrupted, and the program would see that.
pub fn runs_program(pid: i32, tid: i32) -> bool {
    match blocked(pid, tid) {
        Some(blocked) => !blocked.is_kernels(),
        None => !is_kernels(pid, tid),
    }
}

/// The same as [`Blocked::is_kernels`] for a thread that runs. Of its two flags, one has been another in old kernels:
/// such a thread also blocks all signals that can be.
fn is_kernels(pid: i32, tid: i32) -> bool {
    const PF_IO_WORKER: u64 = 0x10;
    const PF_USER_WORKER: u64 = 0x4000;
    const ALL: u64 = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));
    let stat = contents(&format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    // Behind the name: state, parent, group, session, terminal, its group, flags.
    let flags = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & (PF_IO_WORKER | PF_USER_WORKER) != 0)
        && thread_status(pid, tid).is_ok_and(|status| status.blocked == ALL)
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
