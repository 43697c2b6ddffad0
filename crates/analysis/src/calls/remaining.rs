//! The calls of a thread that are open where a selected time ends, and their ends.
//!
//! Only later records tell whether a call went on: its exit does, also if the thread was on another stack at the time's
//! end; a jump tells that it was last known to be open before. So the records behind the time are read, too, but for
//! nothing else: all that happens behind the time happens at its end. How long the calls of one thread have waited, and
//! which of them are passed on, is as if the next record was there.

use super::frame::{Ending, Frame, Plain, Sink, timed};
use super::rebuilder::CallRebuilder;

/// The calls of one stack, outermost first.
struct Open {
    frames: Vec<Frame>,
    /// The number of the outermost one.
    first: u32,
    /// Set if the thread had left them: when, and [`Fiber::counted`](super::Fiber::counted).
    aside: Option<(u64, bool)>,
}

pub struct Remaining {
    /// The end of the time.
    until: u64,
    stacks: Vec<Open>,
    /// For each call by its number, from 1 on, the clock at which it was last known to be open. `WENT_ON` for those of
    /// which no record tells that.
    ends: Vec<u64>,
    /// Whether a record behind the time has been taken.
    is_behind: bool,
}

const WENT_ON: u64 = u64::MAX;

impl CallRebuilder {
    /// The open calls at `until`, which is behind all records that have been taken, and not behind the next one. Recording
    /// was stopped for at most `stopped` of the ticks since the last record. The notes of the frames become the numbers of
    /// the calls, which only [`Remaining::behind`] knows.
    pub fn remaining(&mut self, until: u64, stopped: u64) -> Remaining {
        self.pass(stopped.min(until.saturating_sub(self.last_clock)));
        let outermost = self.frames.first().map_or(until, |frame| frame.clock);
        let spent = self
            .known
            .spent
            .saturating_add(until.saturating_sub(outermost));
        self.known.end = Some((until, spent));
        let mut remaining = Remaining {
            until,
            stacks: Vec::new(),
            ends: vec![WENT_ON],
            is_behind: false,
        };
        remaining.add(&mut self.frames, None);
        for fiber in self.fibers.iter_mut() {
            remaining.add(&mut fiber.frames, Some((fiber.since, fiber.counted)));
        }
        remaining
    }
}

impl Remaining {
    fn add(&mut self, frames: &mut [Frame], aside: Option<(u64, bool)>) {
        let first = self.ends.len() as u32;
        self.stacks.push(Open {
            frames: frames.to_vec(),
            first,
            aside,
        });
        for (number, frame) in (first..).zip(frames) {
            frame.note = number;
            self.ends.push(WENT_ON);
        }
    }

    /// A sink for the records behind the time. `sink` is that of those before.
    pub fn behind<'r, S: Sink>(&'r mut self, sink: &'r mut S) -> Behind<'r, S> {
        Behind {
            remaining: self,
            sink,
        }
    }

    /// Whether a record behind the time has been taken.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The calls that are still open have the ends that `end` knows: the clock at which one was last known to be open, if
    /// no record tells that it went on.
    pub fn end_by(&mut self, rebuilder: &CallRebuilder, end: impl Fn(&Frame) -> Option<u64>) {
        for frame in rebuilder.all_frames().filter(|frame| frame.note != 0) {
            if let Some(clock) = end(frame) {
                self.lose(frame, clock);
            }
        }
    }

    fn lose(&mut self, frame: &Frame, clock: u64) {
        if let Some(end) = self.ends.get_mut(frame.note as usize) {
            *end = clock;
        }
    }

    /// Ends all calls, once records have told of them or there are none.
    pub fn finish(self, sink: &mut dyn Sink) {
        let until = self.until;
        for stack in self.stacks {
            let numbers = stack.first as usize..stack.first as usize + stack.frames.len();
            finish(stack, &self.ends[numbers], until, sink);
        }
    }
}

/// Ends the calls of a stack, of which a record may tell that they were open at `until`, or behind it.
fn finish(stack: Open, ends: &[u64], until: u64, sink: &mut dyn Sink) {
    let Open {
        mut frames, aside, ..
    } = stack;
    // A call of which only the entry is known is there for as long as the one that it is in.
    let mut under = until;
    let mut ends: Vec<u64> = ends.to_vec();
    for (end, frame) in ends.iter_mut().zip(&frames) {
        *end = match frame.has_end() {
            true => (*end).min(until),
            false => under,
        };
        under = *end;
    }
    let mut counted = aside.is_none_or(|(_, counted)| counted);
    if let Some((since, _)) = aside
        && ends.contains(&until)
        && let Some(top) = frames.last_mut()
    {
        top.child = top.child.saturating_add(until.saturating_sub(since));
    }
    while let (Some(end), Some(frame)) = (ends.pop(), frames.pop()) {
        if frame.has_end() {
            if end == until && !counted {
                frames.push(frame);
                sink.resume(&frames);
                frames.pop();
                counted = true;
            }
            sink.lose(&frame, end, counted);
        }
        if let (Some(under), Some(its_end)) = (frames.last_mut(), ends.last()) {
            // Behind the end of this call, it is not known what the one under it did itself.
            let ticks = frame.ticks_until(end.max(*its_end));
            under.child = under.child.saturating_add(ticks);
        }
    }
}

/// Takes the records behind the time.
pub struct Behind<'r, S> {
    remaining: &'r mut Remaining,
    sink: &'r mut S,
}

impl<S: Sink> Behind<'_, S> {
    /// A record has come before which this call was the innermost.
    fn reach(&mut self, innermost: Option<&Frame>) {
        if !std::mem::replace(&mut self.remaining.is_behind, true) {
            self.sink.end_at(self.remaining.until, innermost);
        }
    }
}

impl<S: Sink> Sink for Behind<'_, S> {
    fn takes_runs(&self) -> bool {
        true
    }

    fn begin_run(&mut self, frames: &[Frame]) {
        self.reach(timed(frames));
    }

    fn plain(&mut self, _call: Plain) -> u32 {
        0
    }

    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let under = frames.split_last().map_or(&[][..], |(_, under)| under);
        self.reach(timed(under));
        0
    }

    fn leave(&mut self, frame: &Frame, _ending: Ending, _frames: &[Frame]) {
        self.reach(Some(frame));
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        self.remaining.lose(frame, clock);
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.reach(None);
        let until = self.remaining.until;
        if frame.clock < until {
            let child = frame.child.min(until - frame.clock);
            let ending = Ending {
                clock: until,
                ..ending
            };
            self.sink.stray(&Frame { child, ..*frame }, ending);
        }
    }

    fn mark(&mut self, _clock: u64, _event: u32, _payload: &[u64], frames: &[Frame]) {
        self.reach(timed(frames));
    }

    fn missing(&mut self, clock: u64, ticks: u64) {
        self.reach(None);
        let until = self.remaining.until;
        let since = clock.saturating_sub(ticks);
        if since < until {
            let clock = clock.min(until);
            self.sink.missing(clock, clock - since);
        }
    }
}
