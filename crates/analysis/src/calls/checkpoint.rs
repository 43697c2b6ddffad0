//! The state of a rebuilder between two packets, from which a reader can begin.

use anyhow::{Result, ensure};

use super::frame::{Frame, Sink};
use super::past::Past;
use super::rebuilder::{CallRebuilder, DEPTH_LIMIT};

impl CallRebuilder {
    /// The state, for [`CallRebuilder::resume`]. Its length grows with the number of open calls.
    pub fn checkpoint(&self, past: &Past) -> Result<Vec<u8>> {
        Ok(postcard::to_stdvec(&(self, past))?)
    }

    /// A rebuilder in the state that [`CallRebuilder::checkpoint`] gave, and the past. Any other bytes are refused, or
    /// give a state that is wrong but safe to use.
    pub fn resume(checkpoint: &[u8]) -> Result<(CallRebuilder, Past)> {
        let (rebuilder, past): (CallRebuilder, Past) = postcard::from_bytes(checkpoint)?;
        let depth = rebuilder.frames.len();
        let is_sound = rebuilder.frames.is_sound()
            && rebuilder.fibers.is_sound()
            && past.is_sound()
            && depth <= DEPTH_LIMIT
            && rebuilder.stay.is_none_or(|stay| stay.from <= depth);
        ensure!(is_sound, "no state of calls");
        Ok((rebuilder, past))
    }

    /// Whether the open calls can be given to another sink as if it had received all records: all of them are on the
    /// present stack, with all of their callers. A jump may have ended some of them: the state says which.
    pub fn can_reopen(&self, past: &Past) -> bool {
        self.fibers.is_empty() && past.is_whole()
    }

    /// Passes the open calls to another sink, as if they had begun just now.
    pub fn reopen(&mut self, past: &mut Past, sink: &mut dyn Sink) {
        sink.begin_at(self.last_clock);
        for at in 0..self.frames.len() {
            let arguments = past.take(&self.frames[at]);
            self.frames[at].note = 0;
            self.frames[at].note = sink.reopen(&self.frames[..=at], arguments);
        }
    }

    /// Time before `clock`, which is not behind the next record, is no self time of calls. The clocks of calls stay as
    /// they are: by them it is known which were open at a jump.
    pub fn begin_self_times(&mut self, clock: u64) {
        self.last_clock = self.last_clock.max(clock);
        spend_until(&mut self.frames, clock);
        for fiber in self.fibers.iter_mut() {
            spend_until(&mut fiber.frames, fiber.since.min(clock));
        }
        let outermost = self.frames.first().map_or(clock, |frame| frame.clock);
        let known = &mut self.known;
        known.spent = outermost.min(clock).saturating_sub(known.since);
    }

    /// Whether no later record can tell more of the time before `clock`, except exits of calls whose entries are not
    /// known. `is_cut`: all clocks from there on are `clock`.
    pub fn has_passed(&self, clock: u64, is_cut: bool) -> bool {
        let is_decided = |frame: &Frame| {
            frame.clock >= clock || is_cut && self.known.alive(frame, clock) == clock
        };
        self.fibers.is_empty() && self.before >= clock && self.frames.iter().all(is_decided)
    }
}

/// The time of the open calls of a stack up to `clock`, at which the stack was left if the thread is on another, is that
/// of their callees.
fn spend_until(frames: &mut [Frame], clock: u64) {
    let mut end = clock;
    for frame in frames.iter_mut().rev() {
        frame.child = end.saturating_sub(frame.clock);
        frame.settle();
        end = frame.clock.min(clock);
    }
}
