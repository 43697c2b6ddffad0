//! The thread that waits in the kernel for our answer. The library that reads the kernel's requests does not pass on
//! that a waiting thread was sent a signal, and the thread cannot be woken from outside; so nopal polls its state.

use std::time::Duration;

/// The interval of polling.
pub const LOOK: Duration = Duration::from_millis(50);

/// A thread, by its number here.
#[derive(Debug, Clone, Copy)]
pub struct Reader(pub u32);

impl Reader {
    /// Whether it is about to be ended.
    pub fn is_killed(self) -> bool {
        let sigkill = 1 << (libc::SIGKILL - 1);
        self.signals()
            .is_some_and(|signals| signals.waiting & sigkill != 0)
    }

    /// Whether it has a signal to take.
    pub fn is_interrupted(self) -> bool {
        self.signals()
            .is_some_and(|signals| signals.waiting & !signals.blocked != 0)
    }

    fn signals(self) -> Option<Signals> {
        parse(&std::fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?)
    }
}

/// Sets of signals, a bit each.
#[derive(Debug, PartialEq, Eq)]
struct Signals {
    waiting: u64,
    blocked: u64,
}

fn parse(status: &str) -> Option<Signals> {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    Some(Signals {
        waiting: set("SigPnd:")? | set("ShdPnd:")?,
        blocked: set("SigBlk:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_from_the_kernels_text() {
        let text = "Name:\tx\nSigQ:\t1/3\nSigPnd:\t0000000000000002\nShdPnd:\t0000000000000100\n\
                    SigBlk:\t0000000000000004\nSigIgn:\t0\n";
        let signals = Signals {
            waiting: 0x102,
            blocked: 4,
        };
        assert_eq!(parse(text), Some(signals));
        assert_eq!(parse("SigPnd:\tx\n"), None);
    }

    #[test]
    fn this_thread_was_sent_nothing() {
        let own = Reader(std::process::id());
        assert!(own.signals().is_some() && !own.is_killed());
    }
}
