//! Ends nopal where a signal asks for that and it does not come to it: it may wait for a file server, or for a disk. The
//! guardian then takes nopal out of every process, as if nopal had been killed.
//!
//! Time in which nopal's thread has a processor, or waits for one, does not count: a machine may be crowded, and a request
//! may ask for many changes, after which a signal is taken. Nor does that of other threads of nopal's while it waits for
//! them.

use crate::session::signals::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::cell::OnceCell;
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

thread_local! {
    /// Of a thread that is watched.
    static PROGRESS: OnceCell<Progress> = const { OnceCell::new() };
}

/// Waits for what other threads of this process do.
pub(crate) fn wait_for_others<T>(until_done: impl FnOnce() -> T) -> T {
    let tell = |waits| {
        PROGRESS.with(|progress| {
            if let Some(Progress(progress)) = progress.get() {
                progress.waits_for_others.store(waits, Ordering::Relaxed);
            }
        });
    };
    tell(true);
    let done = until_done();
    tell(false);
    done
}

/// What a thread that is watched comes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    /// The steps of leaving since a signal was taken that asks for it.
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

    fn steps(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }

    fn waits_for_others(&self) -> bool {
        self.0.waits_for_others.load(Ordering::Relaxed)
    }
}

/// Times in which threads of this process were awake.
#[derive(Clone, Copy, Default)]
struct Awake {
    /// Of the thread that is watched.
    own: Duration,
    /// Of all others but the one that looks. `None`: without a free descriptor, it cannot be read for a while.
    others: Option<Duration>,
}

impl Awake {
    fn of(process: i32, thread: i32) -> Awake {
        let looks = own_id();
        let awake = |thread| nopal_process::time_awake(process, thread);
        let threads = nopal_process::threads(process).ok();
        let others = threads.map(|threads| {
            let others = threads.into_iter();
            let others = others.filter(|other| *other != thread && *other != looks);
            others.map(awake).sum()
        });
        Awake {
            own: awake(thread),
            others,
        }
    }
}

/// How long a thread has slept, but for the time in which it waited for others that were awake.
#[derive(Default)]
struct Sleep {
    before: Duration,
    last: Awake,
    looked: Duration,
    /// Of waiting for others that were awake.
    helped: Duration,
    waiting: Option<Waiting>,
}

/// For others, since a moment.
struct Waiting {
    since: Duration,
    /// The others' time then.
    others: Duration,
    /// The part in which they were awake, as far as the kernel has told: it may tell late.
    helped: Duration,
}

impl Sleep {
    fn begin(now: Awake) -> Sleep {
        Sleep {
            before: now.own,
            last: now,
            ..Sleep::default()
        }
    }

    /// `elapsed` since the begin.
    fn look(&mut self, elapsed: Duration, now: Awake, waits_for_others: bool) -> Duration {
        // Numbers that could not be read are 0; those of threads that have ended are missing.
        self.last.own = self.last.own.max(now.own);
        let others = now.others.or(self.last.others).unwrap_or_default();
        if waits_for_others {
            let waiting = self.waiting.get_or_insert(Waiting {
                since: self.looked,
                others: self.last.others.unwrap_or(others),
                helped: Duration::ZERO,
            });
            let passed = elapsed.saturating_sub(waiting.since);
            let helped = others.saturating_sub(waiting.others);
            waiting.helped = waiting.helped.max(helped.min(passed));
        }
        // All that is more than the time that has passed is of several at once.
        let is_over =
            |waiting: &mut Waiting| !waits_for_others || waiting.helped + waiting.since >= elapsed;
        if let Some(over) = self.waiting.take_if(is_over) {
            self.helped += over.helped;
        }
        self.last.others = Some(others);
        self.looked = elapsed;
        let awake = self.last.own.saturating_sub(self.before);
        let helped = self.waiting.as_ref().map(|waiting| waiting.helped);
        elapsed.saturating_sub(awake + self.helped + helped.unwrap_or_default())
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
    PROGRESS.with(|own| drop(own.set(progress.clone())));
    let (process, thread) = (std::process::id() as i32, own_id());
    let begun = Instant::now();
    let mut sleep = Sleep::begin(Awake::of(process, thread));
    let watch = move || {
        let mut look = |waits| sleep.look(begun.elapsed(), Awake::of(process, thread), waits);
        let (mut untaken, mut step) = (None, (0, Duration::ZERO));
        loop {
            if untaken.is_none() && watched.steps() == 0 {
                let mut files = [PollFd::new(&file, PollFlags::IN)];
                match poll(&mut files, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(_) => return,
                }
                look(false);
            }
            std::thread::sleep(BETWEEN_LOOKS);
            let (pending, slept) = (pending(taken), look(watched.waits_for_others()));
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

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn awake(own: u64, others: impl Into<Option<u64>>) -> Awake {
        Awake {
            own: seconds(own),
            others: others.into().map(seconds),
        }
    }

    #[test]
    fn a_thread_that_works_does_not_sleep() {
        let (process, thread) = (std::process::id() as i32, own_id());
        let begun = Instant::now();
        let mut sleep = Sleep::begin(Awake::of(process, thread));
        while begun.elapsed() < Duration::from_millis(300) {
            std::hint::spin_loop();
        }
        let slept = sleep.look(begun.elapsed(), Awake::of(process, thread), false);
        assert!(slept < Duration::from_millis(150), "{slept:?}");
        std::thread::sleep(Duration::from_millis(300));
        let later = sleep.look(begun.elapsed(), Awake::of(process, thread), false);
        assert!(later - slept >= Duration::from_millis(250), "{later:?}");
    }

    #[test]
    fn waiting_for_others_that_work_is_no_sleep() {
        let mut sleep = Sleep::begin(awake(1, 1000));
        let mut look = |elapsed, now, waits| sleep.look(seconds(elapsed), now, waits).as_secs();
        // They work without being waited for.
        assert_eq!(look(10, awake(2, 1010), false), 9);
        // They are waited for, and work.
        assert_eq!(look(11, awake(2, 1011), true), 9);
        assert_eq!(look(14, awake(2, 1014), true), 9);
        // The kernel tells of their time late.
        assert_eq!(look(20, awake(2, 1014), true), 15);
        assert_eq!(look(24, awake(2, 1024), true), 9);
        // They sleep.
        assert_eq!(look(30, awake(2, 1024), true), 15);
        // They are many, of which some have ended, or cannot be read.
        assert_eq!(look(40, awake(2, 9000), true), 9);
        assert_eq!(look(50, awake(0, None), true), 19);
        assert_eq!(look(60, awake(0, 0), true), 29);
        assert_eq!(look(61, awake(2, 9000), false), 30);
        // Another wait.
        assert_eq!(look(70, awake(2, 9000), true), 39);
        assert_eq!(look(80, awake(2, 9010), true), 39);
    }
}
