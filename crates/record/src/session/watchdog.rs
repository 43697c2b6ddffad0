//! Ends nopal where a signal asks for that and it does not come to it: it may wait for a file server, or for a disk. The
//! guardian then takes nopal out of every process, as if nopal had been killed.

use crate::session::signals::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a signal may stay untaken, and a step of leaving may take.
const FOR_A_SIGNAL: Duration = Duration::from_secs(10);
const FOR_A_STEP: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// Says why the process ends, without waiting, and ends it.
pub type End = fn(&str);

static END: OnceLock<End> = OnceLock::new();

/// Has a process that records be ended so. Without this, it is not.
pub fn end_by(end: End) {
    let _ = END.set(end);
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Made>);

#[derive(Debug, Default)]
struct Made {
    /// The steps of leaving since a signal was taken that asks for it.
    steps: AtomicU64,
    /// The changes of a session, of which a request may ask for many. A signal is taken after them.
    changes: AtomicU64,
}

impl Progress {
    /// Such a signal was taken.
    pub fn begin(&self) {
        self.0.steps.fetch_max(1, Ordering::Relaxed);
    }

    pub fn step(&self) {
        if self.steps() > 0 {
            self.0.steps.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn change(&self) {
        self.0.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn steps(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }
}

/// Watches in a thread of its own, which has the signals blocked as the caller. `taken` are the signals that nopal takes;
/// where it does not, `instead` is called with them before the end.
pub(crate) fn start(
    signals: &Signals,
    taken: &'static [i32],
    instead: impl Fn(i32) + Send + 'static,
) -> Progress {
    let progress = Progress::default();
    let (Some(end), Ok(file)) = (END.get(), signals.as_fd().try_clone_to_owned()) else {
        return progress;
    };
    let watched = progress.clone();
    let watch = move || {
        let (mut untaken, mut step, mut changes) = (None, (0, Instant::now()), 0);
        loop {
            if untaken.is_none() && watched.steps() == 0 {
                let mut files = [PollFd::new(&file, PollFlags::IN)];
                match poll(&mut files, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(_) => return,
                }
            }
            std::thread::sleep(BETWEEN_LOOKS);
            let pending = pending(taken);
            let before = std::mem::replace(&mut changes, watched.0.changes.load(Ordering::Relaxed));
            let since = untaken.filter(|_| changes == before);
            untaken = (!pending.is_empty()).then(|| since.unwrap_or_else(Instant::now));
            if step.0 != watched.steps() {
                step = (watched.steps(), Instant::now());
            }
            let is_stuck = step.0 > 0 && step.1.elapsed() >= FOR_A_STEP;
            if is_stuck || untaken.is_some_and(|since| since.elapsed() >= FOR_A_SIGNAL) {
                pending.into_iter().for_each(&instead);
                end(
                    "it waits for a file server, a disk or a process, and ends without them; its guardian takes nopal out of the processes",
                );
            }
        }
    };
    let _ = std::thread::Builder::new().spawn(watch);
    progress
}

/// Those of these signals that are blocked and pending.
fn pending(signals: &[i32]) -> Vec<i32> {
    // SAFETY: the kernel fills in the set, and sigismember reads it.
    unsafe {
        let mut set = std::mem::zeroed();
        if libc::sigpending(&raw mut set) != 0 {
            return Vec::new();
        }
        let is_pending = |signal: &&i32| libc::sigismember(&raw const set, **signal) == 1;
        signals.iter().filter(is_pending).copied().collect()
    }
}
