//! Ends nopal where a signal asks for that and it does not come to it: it may wait for a file server, or for a disk. The
//! guardian then takes nopal out of every process, as if nopal had been killed.
//!
//! Time in which nopal's thread has a processor, or waits for one, does not count: a machine may be crowded, and a request
//! may ask for many changes, after which a signal is taken. Nor does that of other threads of nopal's while it waits for
//! them.

use crate::session::signals::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long nopal may sleep while a signal is not taken, and in a step of leaving.
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

/// The progress in leaving.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// The steps since a signal was taken that asks for it.
    steps: AtomicU64,
    waits_for_others: AtomicBool,
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

    /// Waits for what other threads of this process do.
    pub fn wait<T>(&self, until_done: impl FnOnce() -> T) -> T {
        self.0.waits_for_others.store(true, Ordering::Relaxed);
        let done = until_done();
        self.0.waits_for_others.store(false, Ordering::Relaxed);
        done
    }

    fn steps(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }

    fn waits_for_others(&self) -> bool {
        self.0.waits_for_others.load(Ordering::Relaxed)
    }
}

/// How long a thread of this process has slept.
struct Sleep {
    process: i32,
    thread: i32,
    begun: Instant,
    awake_before: Duration,
    awake: Duration,
    /// Of all other threads but the one that looks.
    others: Duration,
    /// Of these, while the thread waited for them.
    helped: Duration,
}

impl Sleep {
    /// Of the calling thread, from now on.
    fn begin() -> Sleep {
        let process = std::process::id() as i32;
        let thread = own_id();
        let awake = nopal_process::time_awake(process, thread);
        Sleep {
            process,
            thread,
            begun: Instant::now(),
            awake_before: awake,
            awake,
            others: Duration::ZERO,
            helped: Duration::ZERO,
        }
    }

    /// `waits_for_others`: since the last look, or a part of that time.
    fn time(&mut self, waits_for_others: bool) -> Duration {
        // Without a free descriptor, the file cannot be read for a while.
        let awake = nopal_process::time_awake(self.process, self.thread);
        self.awake = self.awake.max(awake);
        let others = self.others();
        if waits_for_others {
            self.helped += others.saturating_sub(self.others);
        }
        self.others = others;
        let awake = self.awake - self.awake_before;
        self.begun.elapsed().saturating_sub(awake + self.helped)
    }

    fn others(&self) -> Duration {
        let own = own_id();
        let all = nopal_process::threads(self.process).unwrap_or_default();
        all.into_iter()
            .filter(|thread| *thread != self.thread && *thread != own)
            .map(|thread| nopal_process::time_awake(self.process, thread))
            .sum()
    }
}

fn own_id() -> i32 {
    rustix::thread::gettid().as_raw_pid()
}

/// Watches the calling thread in one of its own, which has the signals blocked as the caller. `taken` are the signals that
/// the caller takes; where it does not, `instead` is called with them before the end.
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
    let mut sleep = Sleep::begin();
    let watch = move || {
        let (mut untaken, mut step) = (None, (0, Duration::ZERO));
        loop {
            if untaken.is_none() && watched.steps() == 0 {
                let mut files = [PollFd::new(&file, PollFlags::IN)];
                match poll(&mut files, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(_) => return,
                }
            }
            std::thread::sleep(BETWEEN_LOOKS);
            let (pending, slept) = (pending(taken), sleep.time(watched.waits_for_others()));
            untaken = (!pending.is_empty()).then(|| untaken.unwrap_or(slept));
            if step.0 != watched.steps() {
                step = (watched.steps(), slept);
            }
            let since = |begin: Duration| slept.saturating_sub(begin);
            let is_stuck = step.0 > 0 && since(step.1) >= FOR_A_STEP;
            if is_stuck || untaken.is_some_and(|begin| since(begin) >= FOR_A_SIGNAL) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn work() {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn work_is_no_sleep() {
        let mut sleep = Sleep::begin();
        work();
        let while_working = sleep.time(false);
        assert!(
            while_working < Duration::from_millis(150),
            "{while_working:?}"
        );
        std::thread::sleep(Duration::from_millis(300));
        let slept = sleep.time(false) - while_working;
        assert!(slept >= Duration::from_millis(250), "{slept:?}");
    }

    #[test]
    fn waiting_for_work_of_others_is_no_sleep() {
        let mut slept = Vec::new();
        for waits in [false, true] {
            let progress = Progress::default();
            let watched = progress.clone();
            let mut sleep = Sleep::begin();
            let watch = std::thread::spawn(move || {
                let mut looks = 0..40;
                while looks.next().is_some() {
                    std::thread::sleep(Duration::from_millis(10));
                    sleep.time(watched.waits_for_others());
                }
                sleep.time(false)
            });
            let help = || std::thread::spawn(work).join().unwrap();
            match waits {
                true => progress.wait(help),
                false => help(),
            }
            slept.push(watch.join().unwrap());
        }
        // Others work for 300 ms of at least 400.
        let less = slept[0].saturating_sub(slept[1]);
        assert!(less > Duration::from_millis(150), "{slept:?}");
    }
}
