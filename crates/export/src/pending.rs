//! Calls whose begins are to be written with the next event of their thread, in formats of begins and ends.

use nopal_analysis::calls::Frame;

/// A frame to which the thread has returned (a coroutine's), or one that is open where the selected time begins, unless
/// it ends before that.
pub struct Pending {
    pub frame: Frame,
    pub is_resumed: bool,
}

impl Pending {
    /// `from`: the begin of the selected time.
    pub fn open(frame: &Frame, from: u64) -> Pending {
        Pending {
            frame: frame.since(from),
            is_resumed: false,
        }
    }

    pub fn resumed(frame: &Frame) -> Pending {
        Pending {
            frame: *frame,
            is_resumed: true,
        }
    }

    /// Its begin if the next event is at `clock`: the time of the thread's return is not known.
    pub fn begin(&self, clock: u64) -> u64 {
        match self.is_resumed {
            true => clock,
            false => self.frame.clock,
        }
    }

    /// Whether the last of them, whose end at `clock` is not known, has run within the selected time.
    pub fn goes_on(pending: &[Pending], clock: u64) -> bool {
        let last = pending.last();
        last.is_some_and(|last| !last.is_resumed && clock > last.frame.clock)
    }
}
