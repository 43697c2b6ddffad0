//! The reasons why a process cannot be stopped and traced, and their remedies.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use crate::information::{
    alive, directory, has_memory, name, parent, stat_fields, status, thread_status, threads,
};
use crate::thread::own_thread;

/// Found before a process is changed, or while its threads were being stopped: it runs on, untraced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopError {
    /// It does not exist, or has ended.
    Ended,
    /// It has ended, but its parent has not waited for it yet.
    Zombie {
        parent: i32,
        name: String,
    },
    /// The id belongs to another thread of this process.
    ThreadOf(i32),
    KernelThread,
    /// It is the calling process.
    Itself,
    /// Its code is 32-bit.
    ThirtyTwoBit,
    /// This process traces it already: a debugger, or `strace`.
    TracedBy {
        tracer: i32,
        name: String,
    },
    NotPermitted(Barrier),
    /// It is executing another program.
    Executes,
    /// Its thread pointer is still 0: its program has just begun, or has no libc.
    NoControlBlock,
}

/// The restriction that prevents tracing a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// It belongs to this user.
    User(u32),
    /// It belongs to us, but is not dumpable: it was set-user-id, its file cannot be read, or it requested that.
    NotDumpable,
    /// It has capabilities that we do not have.
    Capabilities,
    /// `kernel.yama.ptrace_scope`.
    Yama(u32),
    /// A seccomp filter that we are under, a security module, or another user namespace.
    Unknown,
}

impl fmt::Display for StopError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            StopError::Ended => out.write_str("there is no such process, or it has ended"),
            StopError::Zombie { parent, name } => write!(
                out,
                "the process has ended (a zombie of its parent {parent}, {name})"
            ),
            StopError::ThreadOf(process) => {
                write!(out, "this is a thread of process {process}: use that id")
            }
            StopError::KernelThread => {
                out.write_str("this is a kernel thread, which runs no program")
            }
            StopError::Itself => out.write_str("a process cannot trace itself"),
            StopError::ThirtyTwoBit => {
                out.write_str("the process runs a 32-bit program; only 64-bit ones can be traced")
            }
            StopError::TracedBy { tracer, name } => write!(
                out,
                "the process is already traced by process {tracer} ({name}): detach that first"
            ),
            StopError::NotPermitted(barrier) => {
                write!(out, "the process may not be traced: {barrier}")
            }
            StopError::Executes => {
                out.write_str("the process is executing another program: try again")
            }
            StopError::NoControlBlock => out.write_str(
                "the process has no thread control block: try again if it has just begun; a program without a libc never has one",
            ),
        }
    }
}

impl fmt::Display for Barrier {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Barrier::User(user) => write!(
                out,
                "it belongs to user {user}; run nopal as that user or as root"
            ),
            Barrier::NotDumpable => out.write_str(
                "the kernel keeps its memory secret, because it was started with other rights, its file may not be \
                 read, or it called prctl(PR_SET_DUMPABLE, 0); run nopal as root",
            ),
            Barrier::Capabilities => {
                out.write_str(
                "it has capabilities that nopal lacks; run nopal as root, and outside of containers, which withhold some from root",
            )
            }
            Barrier::Yama(1) => out.write_str(
                "kernel.yama.ptrace_scope is 1: only ancestors may trace; run nopal as root, start the \
                 program with `nopal record`, let it call prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY), or set \
                 `sysctl kernel.yama.ptrace_scope=0` as root",
            ),
            Barrier::Yama(2) => out.write_str(
                "kernel.yama.ptrace_scope is 2: only root may trace; run nopal as root",
            ),
            Barrier::Yama(scope) => write!(
                out,
                "kernel.yama.ptrace_scope is {scope}, which forbids tracing until the next boot; change the setting in /etc/sysctl.d and reboot"
            ),
            Barrier::Unknown => out.write_str(
                "a security policy or a container forbids it (docker: \
                 --cap-add=SYS_PTRACE); run nopal as root, outside of the container",
            ),
        }
    }
}

impl std::error::Error for StopError {}

/// Facts about a process that may be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Examined {
    /// Its own id of itself, which differs from ours in a PID namespace of its own.
    pub own_number: i32,
    /// It has another root file system: [`crate::open_module`] finds its files through `/proc/PID/root`.
    pub other_files: bool,
    /// Some thread is under a seccomp filter or strict mode. See
    /// [`crate::Thread::suspend_seccomp`].
    pub filtered: bool,
}

/// Checks whether a process can be traced, without changing it. The answer may change before the process is stopped;
/// [`crate::Stopped::stop`] then fails with the same errors.
pub fn examine(pid: i32) -> Result<Examined, StopError> {
    let found = status(pid).map_err(|_| StopError::Ended)?;
    if found.process != pid {
        return Err(StopError::ThreadOf(found.process));
    }
    if !alive(pid) {
        return Err(match parent(pid) {
            Ok(parent) if found.state == 'Z' => StopError::Zombie {
                parent,
                name: name(parent).unwrap_or_default(),
            },
            _ => StopError::Ended,
        });
    }
    if is_kernel_thread(pid) {
        return Err(StopError::KernelThread);
    }
    if pid == std::process::id() as i32 {
        return Err(StopError::Itself);
    }
    let threads = threads(pid).unwrap_or_default().into_iter();
    let threads = threads.filter_map(|tid| thread_status(pid, tid).ok());
    let mut filtered = false;
    // A tracer may have one thread only, as nopal has while it is being removed.
    for thread in std::iter::once(found.clone()).chain(threads) {
        if thread.tracer != 0 {
            return Err(traced_by(thread.tracer));
        }
        filtered |= thread.seccomp != 0;
    }
    // The kernel makes the same checks for this as for tracing.
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("{}/mem", directory(pid)));
    if memory.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        return Err(StopError::NotPermitted(barrier(pid)));
    }
    if is_32_bit(pid) {
        return Err(StopError::ThirtyTwoBit);
    }
    let namespace = |pid: i32| fs::read_link(format!("{}/ns/mnt", directory(pid))).ok();
    let root = |pid: i32| {
        let root = fs::metadata(format!("{}/root/", directory(pid))).ok()?;
        Some((root.dev(), root.ino()))
    };
    let own = std::process::id() as i32;
    Ok(Examined {
        own_number: found.namespace_ids.last().copied().unwrap_or(pid),
        other_files: namespace(pid) != namespace(own) || root(pid) != root(own),
        filtered,
    })
}

pub(crate) fn traced_by(tracer: i32) -> StopError {
    StopError::TracedBy {
        tracer,
        name: name(tracer).unwrap_or_default(),
    }
}

fn is_kernel_thread(pid: i32) -> bool {
    const PF_KTHREAD: u64 = 0x20_0000;
    stat_fields(&format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|fields| fields.get(9 - 3)?.parse::<u64>().ok())
        .is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// By the class of the executable: `ELFCLASS32`, also of programs for the x32 ABI.
fn is_32_bit(pid: i32) -> bool {
    let mut header = [0; 5];
    let file = File::open(format!("{}/exe", directory(pid)));
    file.and_then(|mut file| file.read_exact(&mut header))
        .is_ok()
        && header == *b"\x7fELF\x01"
}

/// The reason why the kernel refuses, in the order of its checks.
pub(crate) fn barrier(pid: i32) -> Barrier {
    let user = rustix::process::getuid().as_raw();
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
        .ok()
        .and_then(|scope| scope.trim().parse().ok());
    let Ok(theirs) = status(pid) else {
        return Barrier::Unknown;
    };
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && let Some(other) = theirs.users[..3].iter().find(|&&other| other != user) {
        return Barrier::User(*other);
    }
    let ours = thread_status(std::process::id() as i32, own_thread());
    match scope {
        _ if is_secret(pid) => Barrier::NotDumpable,
        _ if ours.is_ok_and(|ours| theirs.capabilities & !ours.capabilities != 0) => {
            Barrier::Capabilities
        }
        Some(scope) if scope > 2 || scope > 0 && !is_root => Barrier::Yama(scope),
        _ => Barrier::Unknown,
    }
}

/// Why a process has not the program that it had, or has become secret meanwhile. While it executes another program it
/// has none, but memory; one that is about to end has neither.
pub fn gone(pid: i32) -> StopError {
    match has_memory(pid) {
        true if is_secret(pid) => StopError::NotPermitted(Barrier::NotDumpable),
        true => StopError::Executes,
        false => StopError::Ended,
    }
}

/// Whether the process is not dumpable, and we are not root: its files in /proc belong to root then.
fn is_secret(pid: i32) -> bool {
    let memory = fs::metadata(format!("/proc/{pid}/mem"));
    let owner = status(pid).map(|status| status.users[1]);
    let differs = memory.is_ok_and(|memory| owner.is_ok_and(|owner| memory.uid() != owner));
    differs && !rustix::process::geteuid().is_root()
}

/// Whether the system counts memory that processes ask for (strict overcommit), private memory when it is mapped and
/// shared memory page by page. A process that stores where it has no page, and for which none is left, is killed.
pub fn counts_memory() -> bool {
    fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2")
}

/// The further memory that such a system lets processes ask for, in bytes.
pub fn memory_that_may_be_asked_for() -> Option<u64> {
    may_be_asked_for(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn may_be_asked_for(memory: &str) -> Option<u64> {
    let kibibytes = |key: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(key))?;
        line.strip_suffix(" kB")?.trim().parse::<u64>().ok()
    };
    let left = kibibytes("CommitLimit:")?.saturating_sub(kibibytes("Committed_AS:")?);
    Some(left.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_overcommit_leaves_what_is_not_committed() {
        let memory = "MemTotal: 9 kB\nCommitLimit:    1000 kB\nCommitted_AS:     400 kB\n";
        assert_eq!(may_be_asked_for(memory), Some(600 << 10));
        assert_eq!(may_be_asked_for("MemTotal: 9 kB\n"), None);
        let over = "CommitLimit: 1 kB\nCommitted_AS: 2 kB\n";
        assert_eq!(may_be_asked_for(over), Some(0));
    }
}
