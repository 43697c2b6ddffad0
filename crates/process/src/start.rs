//! What this process was given when it began, which a program that it launches must be given, too.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Signals that a program may neither handle nor ignore, or that libc keeps for itself.
const UNTOUCHABLE: [i32; 4] = [libc::SIGKILL, libc::SIGSTOP, 32, 33];
const SIGNALS: i32 = 64;

static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// Rust's runtime, before `main`, ignores SIGPIPE and opens descriptors 0 to 2 if they are closed. This comes before.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

extern "C" fn remember() {
    let mut ignored = 0;
    for signal in 1..=SIGNALS {
        // SAFETY: with no new action, sigaction only fills in the old one; zeroes are a valid one.
        unsafe {
            let mut action = std::mem::zeroed::<libc::sigaction>();
            let known = libc::sigaction(signal, ptr::null(), &raw mut action) == 0;
            if known && action.sa_sigaction == libc::SIG_IGN {
                ignored |= 1 << (signal - 1);
            }
        }
    }
    // SAFETY: F_GETFD only asks.
    let closed = |descriptor: &i32| unsafe { libc::fcntl(*descriptor, libc::F_GETFD) == -1 };
    let closed = (0..3)
        .filter(closed)
        .fold(0, |set, descriptor| set | 1 << descriptor);
    IGNORED.store(ignored, Ordering::Relaxed);
    BLOCKED.store(swap_mask(None), Ordering::Relaxed);
    CLOSED.store(closed, Ordering::Relaxed);
}

/// The state of signals and descriptors that the shell, or whoever started us, gave us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    ignored: u64,
    blocked: u64,
    closed: u64,
}

impl Start {
    pub(crate) fn of_this_process() -> Start {
        Start {
            ignored: IGNORED.load(Ordering::Relaxed),
            blocked: BLOCKED.load(Ordering::Relaxed),
            closed: CLOSED.load(Ordering::Relaxed),
        }
    }

    /// In a child, before `execve`. Async-signal-safe.
    pub(crate) fn restore(self) {
        for signal in (1..=SIGNALS).filter(|signal| !UNTOUCHABLE.contains(signal)) {
            let ignore = self.ignored & 1 << (signal - 1) != 0;
            // SAFETY: zeroes are a valid action, and neither of these handlers is code.
            unsafe {
                let mut action = std::mem::zeroed::<libc::sigaction>();
                action.sa_sigaction = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
                libc::sigaction(signal, &raw const action, ptr::null_mut());
            }
        }
        for descriptor in (0..3).filter(|descriptor| self.closed & 1 << descriptor != 0) {
            // SAFETY: what the Rust runtime opened there, nobody in this child needs.
            unsafe { libc::close(descriptor) };
        }
        swap_mask(Some(self.blocked));
    }
}

/// Sets the calling thread's signal mask, if one is given, and returns what it was. libc would hide its own two
/// signals.
pub(crate) fn swap_mask(new: Option<u64>) -> u64 {
    let mut old = 0u64;
    let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the kernel's signal set is eight bytes, read if the pointer is not null, and written to `old`.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            new,
            &raw mut old,
            8,
        )
    };
    old
}
