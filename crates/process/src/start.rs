//! The signals, descriptors and limits with which this process began, which a launched program must get, too.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Signals that a program may neither handle nor ignore, or that libc keeps for itself.
const UNTOUCHABLE: [i32; 4] = [libc::SIGKILL, libc::SIGSTOP, 32, 33];
const SIGNALS: i32 = 64;

static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// Limits that may end or hinder us.
const RESOURCES: [libc::__rlimit_resource_t; 8] = [
    libc::RLIMIT_CPU,
    libc::RLIMIT_FSIZE,
    libc::RLIMIT_DATA,
    libc::RLIMIT_STACK,
    libc::RLIMIT_NPROC,
    libc::RLIMIT_NOFILE,
    libc::RLIMIT_MEMLOCK,
    libc::RLIMIT_AS,
];

/// The original limits of this process, before it raised them.
static LIMITS: OnceLock<[libc::rlimit; RESOURCES.len()]> = OnceLock::new();

/// More files than a session has open; the kernel does not permit an unlimited number.
const FILES: u64 = 1 << 16;
/// The limit of the first thread's stack. Not unlimited: an access through `/proc/PID/mem` to an address that is not
/// mapped, such as one of the program before `execve`, makes the other process's stack grow down to that address, as
/// far as the limit of the process that accesses it permits.
const STACK: u64 = 8 << 20;

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

fn limit(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the kernel fills the structure in.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit
}

/// Raises this process's own limits as far as permitted, sets that of its stack, and ignores their signals. Launched
/// programs get the original limits.
pub fn lift_limits() {
    for signal in [libc::SIGXFSZ, libc::SIGXCPU] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let given = LIMITS.get_or_init(|| RESOURCES.map(limit));
    for (resource, given) in RESOURCES.into_iter().zip(given) {
        let (now, most) = match resource {
            libc::RLIMIT_NOFILE => (u64::MAX, given.rlim_max.max(FILES)),
            libc::RLIMIT_STACK => (STACK, libc::RLIM_INFINITY),
            _ => (u64::MAX, libc::RLIM_INFINITY),
        };
        let raise = |to: u64| {
            let limit = libc::rlimit {
                rlim_cur: now.min(to),
                rlim_max: to,
            };
            // SAFETY: a system call on a structure of ours.
            unsafe { libc::setrlimit(resource, &raw const limit) == 0 }
        };
        // Only root may go beyond the hard limit.
        let _ = raise(most) || raise(given.rlim_max);
    }
}

/// The original state of signals, descriptors and limits, from our parent.
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
        for (resource, given) in RESOURCES
            .into_iter()
            .zip(LIMITS.get().into_iter().flatten())
        {
            // SAFETY: a system call on a structure of ours.
            unsafe { libc::setrlimit(resource, given) };
        }
        swap_mask(Some(self.blocked));
    }
}

/// Sets the calling thread's signal mask, if one is given, and returns the previous one. libc would hide its own two
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
