//! Seccomp filters of other processes.

use std::collections::HashMap;

use anyhow::{Error, Result};
use nopal_process::{PossibleCall, Thread};

/// The mode (0 none, 1 strict, 2 filters), and how many filters. The number is unknown before Linux 5.9.
pub type Filters = (u32, Option<u32>);

const NONE: u32 = 0;

/// Whether a thread of the process may be under a seccomp filter that the tool is not under itself.
///
/// The kernel tells how many filters there are, not which. A process is under those of its parent, and adds its own. So
/// if tool and process are under as many as their nearest common ancestor, these are the same. A process that a runtime
/// brings into a container has no ancestor there: it is under the container's filters, if it is under as many as the
/// container's first process, or one that came the same way.
pub fn under_new_filter(process: i32) -> bool {
    let threads = nopal_process::threads(process);
    threads.map_or(true, |threads| are_new(process, &threads))
}

/// The same of one thread, which may add filters without the others.
pub fn is_under_new_filter(thread: &Thread) -> bool {
    are_new(thread.pid(), &[thread.tid()])
}

/// The system calls that the agent makes, and the one by which the kernel goes on with a wait.
const CALLS: [(&str, i64); 16] = [
    ("futex", libc::SYS_futex),
    ("getpid", libc::SYS_getpid),
    ("gettid", libc::SYS_gettid),
    ("madvise", libc::SYS_madvise),
    ("mmap", libc::SYS_mmap),
    ("munlock", libc::SYS_munlock),
    ("munmap", libc::SYS_munmap),
    ("prctl", libc::SYS_prctl),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("restart_syscall", libc::SYS_restart_syscall),
    ("rt_sigaction", libc::SYS_rt_sigaction),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    ("rt_sigreturn", libc::SYS_rt_sigreturn),
    ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo),
    ("sched_yield", libc::SYS_sched_yield),
    ("tgkill", libc::SYS_tgkill),
];

/// Those that may fail: nothing but their effect is missing then.
const OPTIONAL: [i64; 4] = [
    libc::SYS_madvise,
    libc::SYS_munlock,
    libc::SYS_process_vm_readv,
    libc::SYS_sched_yield,
];

/// A filter may look at what is to be mapped.
const MAPPED: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// Which filters of others permit all that the agent does, by what they are.
#[derive(Default)]
pub struct Permitting(HashMap<nopal_process::Filters, bool>);

impl Permitting {
    /// The number of filters that a thread is under, which is stopped, if they permit it.
    pub fn of(&mut self, thread: &Thread) -> Option<Filters> {
        let filters = thread.filters().ok()?;
        let permit = self.0.entry(filters).or_insert_with_key(permit_all);
        permit
            .then(|| filters_of_thread(thread.pid(), thread.tid()).ok()?)
            .flatten()
    }
}

fn permit_all(filters: &nopal_process::Filters) -> bool {
    let calls = CALLS.map(|(_, number)| PossibleCall {
        number: number as u32,
        third: (number == libc::SYS_mmap).then_some(MAPPED),
        may_fail: OPTIONAL.contains(&number),
    });
    filters.permit(&calls)
}

/// Whether a thread of the process may be under a filter that the tool is not under, nor any that are `permitted`.
pub fn may_be_forbidden(process: i32, permitted: Option<Filters>) -> bool {
    let Ok(threads) = nopal_process::threads(process) else {
        return true;
    };
    let is_permitted = |thread: &i32| {
        permitted.is_some() && filters_of_thread(process, *thread).ok().flatten() == permitted
    };
    let others: Vec<i32> = threads
        .into_iter()
        .filter(|thread| !is_permitted(thread))
        .collect();
    !others.is_empty() && are_new(process, &others)
}

/// Whether a thread of a process that has been traced may be under such a filter now. The process was under none when it
/// was attached to, or they are known by their number; filters are only added. So numbers tell, also where the tool was
/// killed and its guardian, or the process, has another parent since.
pub fn has_added_filter(process: i32) -> bool {
    let threads = nopal_process::threads(process);
    threads.map_or(true, |threads| are_other(process, &threads))
}

/// The same of one thread.
pub fn thread_has_added_filter(thread: &Thread) -> bool {
    are_other(thread.pid(), &[thread.tid()])
}

fn are_new(process: i32, threads: &[i32]) -> bool {
    let tool = std::process::id() as i32;
    let ours = filters(tool);
    are_other(process, threads)
        || ours.is_none_or(|ours| ours.0 != NONE)
            && !sources(process, tool)
                .is_some_and(|sources| sources.into_iter().all(|source| filters(source) == ours))
}

/// Whether any of these threads is under other filters than the tool, by their number.
fn are_other(process: i32, threads: &[i32]) -> bool {
    let Some(ours) = filters(std::process::id() as i32) else {
        return true;
    };
    threads
        .iter()
        .any(|&thread| match filters_of_thread(process, thread) {
            Ok(theirs) => theirs.is_some_and(|theirs| theirs != ours),
            Err(_) => true,
        })
}

/// Whether the kernel lets the tool suspend the filters of another process: only root, and under none.
pub fn may_suspend() -> bool {
    let ours = filters(std::process::id() as i32);
    rustix::process::geteuid().is_root() && ours.is_some_and(|ours| ours.0 == NONE)
}

/// `None`: not known.
fn filters(process: i32) -> Option<Filters> {
    filters_of_thread(process, process).ok().flatten()
}

/// `None`: the thread has ended.
fn filters_of_thread(process: i32, thread: i32) -> Result<Option<Filters>> {
    let status = match nopal_process::thread_status(process, thread) {
        Err(error) if has_ended(&error) => return Ok(None),
        status => status?,
    };
    Ok((!status.is_dead()).then_some((status.seccomp, status.seccomp_filters)))
}

fn has_ended(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    let number = cause.and_then(std::io::Error::raw_os_error);
    [Some(libc::ENOENT), Some(libc::ESRCH)].contains(&number)
}

/// The nearest common ancestor of two processes, or the first ancestors of both in one container. `None`: not known.
fn sources(one: i32, other: i32) -> Option<Vec<i32>> {
    let (one, other) = (line(one)?, line(other)?);
    if let Some(&common) = one.iter().find(|process| other.contains(process)) {
        return Some(vec![common]);
    }
    let firsts = vec![*one.last()?, *other.last()?];
    let container = |process: &i32| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let containers: Option<Vec<_>> = firsts.iter().map(container).collect();
    (containers?.windows(2).all(|two| two[0] == two[1])).then_some(firsts)
}

/// A process and its ancestors, the nearest first.
fn line(process: i32) -> Option<Vec<i32>> {
    /// An ancestor that ends meanwhile makes the look fail.
    const TRIES: usize = 3;
    let look = || {
        let mut line = vec![process];
        loop {
            match nopal_process::parent(*line.last()?).ok()? {
                0 => return Some(line),
                parent => line.push(parent),
            }
        }
    };
    (0..TRIES).find_map(|_| look())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_calls_of_the_agent_are_looked_for_in_filters() {
        const SOURCES: [&str; 3] = [
            include_str!("../../../runtime/port/linux/port.c"),
            include_str!("../../../runtime/port/linux/trap.c"),
            include_str!("../../../runtime/arch/x86_64/trap.S"),
        ];
        let mut made = 0;
        for rest in SOURCES
            .iter()
            .flat_map(|source| source.split("__NR_").skip(1))
        {
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            assert!(CALLS.iter().any(|(known, _)| *known == name), "{name}");
            made += 1;
        }
        assert!(made >= CALLS.len() - 1);
    }
}
