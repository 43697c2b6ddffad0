//! Avoids a deadlock: `PTRACE_SEIZE` waits for an `execve` in the same process, `execve` waits until all other threads
//! of the process are gone, and traced threads are gone only when the tracer has waited for them, which it cannot do
//! within `PTRACE_SEIZE`. But another OS thread of ours can wait for them.

use nopal_beside::{Condvar, Mutex};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ptrace;

const SUSPICIOUS: Duration = Duration::from_millis(10);

/// Waits for ended threads on behalf of an OS thread whose seizing takes long.
pub(crate) struct Reaper {
    shared: Arc<Shared>,
    works: Cell<bool>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    seized: Vec<i32>,
    seizing: Option<Instant>,
    over: bool,
}

impl Reaper {
    pub(crate) fn new() -> Reaper {
        Reaper {
            shared: Arc::default(),
            works: Cell::new(false),
        }
    }

    /// Seizes a thread with `seize`, and waits for ended threads meanwhile if necessary.
    pub(crate) fn watch<T>(&self, pid: i32, tid: i32, seize: impl FnOnce() -> T) -> T {
        let any_seized = self.shared.with(|state| {
            state.seizing = Some(Instant::now());
            !state.seized.is_empty()
        });
        // Before, there is none to wait for.
        if any_seized && !self.works.replace(true) {
            let work = Arc::clone(&self.shared);
            // Without it, the deadlock remains possible, but is rare.
            let _ = std::thread::Builder::new()
                .name("nopal-reaper".to_owned())
                .spawn(move || work.run());
        }
        let result = seize();
        self.shared.with(|state| {
            state.seizing = None;
            // `execve` does not need the first thread waited for, and its status is that of the process.
            state.seized.extend((tid != pid).then_some(tid));
        });
        result
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.shared.with(|state| state.over = true);
        self.shared.over.notify_all();
    }
}

impl Shared {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock())
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.over {
            let goes_on = |state: &mut State| !state.over;
            state = self.over.wait_timeout_while(state, SUSPICIOUS, goes_on);
            if !state.over
                && state
                    .seizing
                    .is_some_and(|since| since.elapsed() >= SUSPICIOUS)
            {
                state.seized.retain(|&tid| !reap(tid));
            }
        }
    }
}

/// Whether the thread has ended; it is then gone.
fn reap(tid: i32) -> bool {
    let ended = libc::WEXITED | libc::WNOHANG;
    // Only look first: the kernel would also report a stop, for which another thread waits.
    match ptrace::wait_status(tid, ended | libc::WNOWAIT) {
        Ok(Some(status)) if !status.is_stop() => ptrace::wait_status(tid, ended).is_ok(),
        _ => false,
    }
}
