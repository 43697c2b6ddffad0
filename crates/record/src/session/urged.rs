//! Signals that end a program, passed on to one that cannot take them: it is stopped, frozen, or held by a debugger, or waits
//! in the kernel.

use crate::session::signals::send_signal;
use nopal_process::Thread;
use std::time::{Duration, Instant};

/// How long a program may leave such a signal, and its children go on after it has ended, before nopal leaves them.
const PATIENCE: Duration = Duration::from_secs(5);

/// Those that end a program, passed on from outside of its terminal.
const ENDING: [i32; 2] = [libc::SIGTERM, libc::SIGHUP];

#[derive(Default)]
pub(crate) struct Urged(Option<(i32, Instant)>);

impl Urged {
    /// Passes on a signal. One that ends a program has it go on where it is stopped, as a shell does.
    pub fn pass(&mut self, process: i32, signal: i32) {
        send_signal(process, signal);
        if !ENDING.contains(&signal) {
            return;
        }
        self.0.get_or_insert((signal, Instant::now()));
        if nopal_process::status(process).is_ok_and(|status| status.state == 'T') {
            send_signal(process, libc::SIGCONT);
        }
    }

    /// The signal that the program has not taken for long, though it does not block it.
    pub fn in_vain(&mut self, process: i32) -> Option<i32> {
        let (signal, _) = self.0.filter(|_| self.is_over())?;
        let bit = 1 << (signal - 1);
        let status = nopal_process::status(process);
        let is_left = status.is_ok_and(|it| it.pending_for_all & !it.blocked & bit != 0);
        if !is_left {
            self.0 = None;
        }
        is_left.then_some(signal)
    }

    /// Whether the time is over that such a signal leaves to the program, and to its children when it has ended.
    pub fn is_over(&self) -> bool {
        self.0.is_some_and(|(_, since)| since.elapsed() >= PATIENCE)
    }
}

/// A program that has made its parent its tracer (`PTRACE_TRACEME`) stands still at its next signal, and takes no other. It
/// goes on with that one.
pub(crate) fn go_on(process: i32) {
    Thread::let_go_of_child(process);
}
