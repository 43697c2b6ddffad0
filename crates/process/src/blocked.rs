//! Threads that wait in the kernel and do not stop, examined without stopping them.

use crate::information::{contents, parent, thread_has_memory, thread_status, threads};

const SYS_CLONE3: i64 = 435;
const KCMP_VM: i32 = 1;

/// The place at which a waiting thread entered the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    /// Number of the system call; negative outside of one.
    pub number: i64,
    /// The stack pointer.
    pub stack: u64,
    /// The address behind the instruction that made the call.
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
        .into_iter()
        .filter(|&child| share_memory(pid, child))
        .filter(|&child| thread_status(child, child).is_ok_and(|status| !status.is_dead()))
        .collect()
}

/// The children of these threads that run in their memory, but for which they do not wait.
pub(crate) fn children_beside(pid: i32, threads: &[i32]) -> Vec<i32> {
    let parents = threads.iter().map(|&tid| (tid, children(pid, tid)));
    let parents = parents.filter(|(_, children)| !children.is_empty());
    let parents = parents.filter(|&(tid, _)| vfork_children(pid, tid).is_empty());
    let children = parents.flat_map(|(_, children)| children);
    children.filter(|&child| share_memory(pid, child)).collect()
}

/// Whether a child's end signals this thread.
pub(crate) fn has_children(pid: i32, tid: i32) -> bool {
    !children(pid, tid).is_empty()
}

fn children(pid: i32, tid: i32) -> Vec<i32> {
    let text = contents(&format!("/proc/{pid}/task/{tid}/children"));
    let text = String::from_utf8(text.unwrap_or_default()).unwrap_or_default();
    let numbers = text.split_ascii_whitespace();
    numbers.filter_map(|child| child.parse().ok()).collect()
}

/// The processes of their own that run in the same memory, as `clone` makes them with `CLONE_VM` alone: parents and
/// children of each other, and children of a process above, which become that by `CLONE_PARENT`, or when their parent
/// ends. `parents`: the threads of the process whose children are looked at. A process that waits for its `vfork` child
/// executes nothing meanwhile, and is not among them.
pub(crate) fn sharers(pid: i32, parents: &[i32]) -> Vec<i32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        let threads = match next {
            0 => parents.to_vec(),
            _ => threads(process).unwrap_or_default(),
        };
        let waits = |parent: &i32| {
            let mut threads = threads_of(*parent);
            threads.any(|tid| vfork_children(*parent, tid).contains(&process))
        };
        let parent = parent(process).ok().into_iter();
        let parent = parent.filter(|&parent| parent > 1 && share_memory(pid, parent));
        let children = threads.iter().flat_map(|&tid| children(process, tid));
        let children = children.filter(|&child| share_memory(pid, child));
        let others = ancestors(process).flat_map(children_of);
        let others = others.filter(|&other| other != process && share_memory(pid, other));
        let beside = parent.chain(others).filter(|it| !waits(it));
        let relatives: Vec<i32> = children.chain(beside).collect();
        for relative in relatives {
            if !found.contains(&relative) {
                found.push(relative);
            }
        }
        next += 1;
    }
    found.split_off(1)
}

/// The parent, its parent, and so on, as far as they can be seen from here.
fn ancestors(pid: i32) -> impl Iterator<Item = i32> {
    let above = |process: &i32| parent(*process).ok().filter(|&parent| parent > 0);
    std::iter::successors(above(&pid), above)
}

fn children_of(pid: i32) -> impl Iterator<Item = i32> {
    threads_of(pid).flat_map(move |tid| children(pid, tid))
}

fn threads_of(pid: i32) -> impl Iterator<Item = i32> {
    threads(pid).unwrap_or_default().into_iter()
}

/// Whether two processes run in the same memory. To the kernel, two without any do, as their first threads have ended.
pub fn share_memory(one: i32, other: i32) -> bool {
    // SAFETY: compares, and takes numbers only.
    let same = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0 };
    same && thread_has_memory(one, one)
}
