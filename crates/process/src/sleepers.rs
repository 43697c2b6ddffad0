//! Threads that were to be let go while they slept uninterruptibly. They stop when they wake, and must go on then.

use std::cell::{OnceCell, RefCell};
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use crate::blocked::vfork_children;
use crate::restart::wind_back;
use crate::thread::Pause;
use crate::{Event, Stop, Thread};

/// The longest time for which threads stand still longer so that others can be let go before them.
const FOR_PARENTS: Duration = Duration::from_millis(10);

thread_local! {
    /// Only the OS thread that traces them can let them go. When it ends, the kernel does so: nothing is to be dropped.
    static SLEEPERS: RefCell<Vec<ManuallyDrop<Thread>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a thread that does not stop, to be let go by [`release_sleepers`], or held again by [`take`].
pub(crate) fn keep(thread: Thread) {
    let thread = ManuallyDrop::new(thread);
    let _ = SLEEPERS.try_with(|sleepers| sleepers.borrow_mut().push(thread));
}

/// The thread with this id, still traced, if it was kept.
pub(crate) fn take(tid: i32) -> Option<Thread> {
    SLEEPERS.with_borrow_mut(|sleepers| {
        let at = sleepers.iter().position(|sleeper| sleeper.tid() == tid)?;
        Some(ManuallyDrop::into_inner(sleepers.swap_remove(at)))
    })
}

/// A thread of a process that waits for a child of `vfork` among `others` stops only when that goes on, which may end at
/// once. The signal that tells of this is not discarded while the parent is traced, and wakes another thread. So the
/// children are let go first, and then their parents when they stop. Returns what remains of the process's `own` threads.
pub(crate) fn let_parents_go(own: Vec<Thread>, others: &mut Vec<Thread>) -> Vec<Thread> {
    let mut children = Vec::new();
    let (mut parents, mut rest): (Vec<_>, Vec<_>) = own.into_iter().partition(|thread| {
        let before = children.len();
        if thread.stop().is_none() && !others.is_empty() {
            let awaited = vfork_children(thread.pid(), thread.tid());
            let is_held = |child: &i32| others.iter().any(|other| other.tid() == *child);
            children.extend(awaited.into_iter().filter(is_held));
        }
        children.len() > before
    });
    others.retain_mut(|other| !children.contains(&other.tid()) || !other.leave_if_stopped());
    let begun = Instant::now();
    let mut pause = Pause::default();
    while !parents.is_empty() && begun.elapsed() < FOR_PARENTS {
        pause.rest();
        parents.retain_mut(|parent| parent.poll().is_err() || !parent.leave_if_stopped());
    }
    rest.append(&mut parents);
    rest
}

/// Waits for the threads of a process that have ended, all but the first: `execve` of another one waits for that.
pub(crate) fn reap(pid: i32) {
    let has_ended = |sleeper: &mut ManuallyDrop<Thread>| {
        sleeper.pid() == pid
            && sleeper.tid() != pid
            && matches!(sleeper.poll(), Ok(Some(Event::Ended(_))))
    };
    SLEEPERS.with_borrow_mut(|sleepers| sleepers.retain_mut(|sleeper| !has_ended(sleeper)));
}

/// Lets go the threads that did not stop when this OS thread was done with them, and have stopped since. Returns whether
/// others still sleep.
pub fn release_sleepers() -> bool {
    for mut sleeper in SLEEPERS.take().into_iter().map(ManuallyDrop::into_inner) {
        match sleeper.poll() {
            Ok(None) if sleeper.is_ours() => {
                keep(sleeper);
                continue;
            }
            Ok(Some(Event::Stopped(Stop::Interrupted))) => {
                let _ = wind_back(&mut sleeper, &OnceCell::new());
            }
            _ => {}
        }
        if sleeper.let_go(Instant::now()).is_err() {
            keep(sleeper);
        }
    }
    SLEEPERS.with_borrow(|sleepers| !sleepers.is_empty())
}
