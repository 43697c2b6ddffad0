//! Passes on the selected calls of a thread only.
//!
//! On each stack, the frames outside of all selected calls come first, and all calls in a call that is left out are
//! left out. So the selected frames among the open ones adjoin.

use anyhow::Result;
use nopal_trace::{Clocks, ThreadInfo};

use super::{Choice, Filter};
use crate::calls::{Ending, Frame, Sink, Style};
use crate::waits::InCall;
use crate::worker::{Times, Worker};

/// Notes of frames that are left out, as are all calls in them.
const NEVER: u32 = u32::MAX;
/// Notes of frames that are outside of all selected calls.
const NOT_YET: u32 = u32::MAX - 1;

/// A worker that gets only the selected calls.
pub struct Selected<'a> {
    worker: &'a mut dyn Worker,
    filter: &'a Filter,
    clocks: &'a Clocks,
    /// Nothing if the worker selects by time itself.
    from: Option<u64>,
    until: Option<u64>,
    least_ns: u64,
}

enum Verdict {
    Whole,
    Cut,
    Out,
}

impl<'a> Selected<'a> {
    pub fn new(worker: &'a mut dyn Worker, filter: &'a Filter, clocks: &'a Clocks) -> Selected<'a> {
        let (from, until, least_ns) = match worker.times() {
            Times::Own => (None, None, 0),
            Times::Whole | Times::Parts => (filter.from, filter.until, filter.least_ns),
        };
        Selected {
            worker,
            filter,
            clocks,
            from,
            until,
            least_ns,
        }
    }

    /// Ends the time then, by the clocks of net times.
    pub fn until(mut self, until: Option<u64>) -> Selected<'a> {
        self.until = self.until.and(until);
        self
    }

    /// The selected ones of some frames of a stack.
    fn selected<'f>(&self, frames: &'f [Frame]) -> &'f [Frame] {
        if self.filter.is_everything() {
            return frames;
        }
        let first = frames.partition_point(|frame| frame.note == NOT_YET);
        let frames = &frames[first..];
        let last = frames.partition_point(|frame| frame.note != NEVER);
        &frames[..last]
    }

    fn judge(&self, begin: u64, end: u64) -> Verdict {
        let (from, until) = (self.from, self.until);
        if from.is_some_and(|from| end <= from) || until.is_some_and(|until| begin >= until) {
            return Verdict::Out;
        }
        let is_cut =
            from.is_some_and(|from| begin <= from) || until.is_some_and(|until| end >= until);
        if is_cut && self.worker.times() == Times::Parts {
            return Verdict::Cut;
        }
        let ticks = end.saturating_sub(begin);
        match self.least_ns > 0 && self.clocks.duration_ns(ticks) < self.least_ns {
            true => Verdict::Out,
            false => Verdict::Whole,
        }
    }

    fn note(&self, site: u32, caller: Option<u32>) -> Option<u32> {
        match (self.filter.choice(site), caller) {
            (Choice::No, _) | (_, Some(NEVER)) => Some(NEVER),
            (Choice::Inside, None | Some(NOT_YET)) => Some(NOT_YET),
            _ => None,
        }
    }
}

impl Sink for Selected<'_> {
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let [under @ .., frame] = frames else {
            return NEVER;
        };
        if let Some(note) = self.note(frame.site(), under.last().map(|under| under.note)) {
            return note;
        }
        if self.until.is_some_and(|until| frame.clock >= until) {
            return NEVER;
        }
        // The last frame has no note yet.
        let first = under.partition_point(|frame| frame.note == NOT_YET);
        let is_before = self.from.is_some_and(|from| frame.clock <= from);
        match frame.style() == Style::Only && (is_before || self.least_ns > 0) {
            true => self.worker.enter_left_out(&frames[first..], arguments),
            false => self.worker.enter(&frames[first..], arguments),
        }
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        if frame.note >= NOT_YET {
            return;
        }
        match self.judge(frame.clock, ending.clock) {
            Verdict::Whole => self.worker.leave(frame, ending, self.selected(frames)),
            Verdict::Cut => self.worker.lose(frame, ending.clock, true),
            Verdict::Out => self.worker.dismiss(frame, true),
        }
    }

    fn lose(&mut self, frame: &Frame, clock: u64, counted: bool) {
        if frame.note >= NOT_YET {
            return;
        }
        match self.judge(frame.clock, clock) {
            Verdict::Whole | Verdict::Cut => self.worker.lose(frame, clock, counted),
            Verdict::Out => self.worker.dismiss(frame, counted),
        }
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        let is_selected = self.note(frame.site(), None).is_none();
        if is_selected && !matches!(self.judge(frame.clock, ending.clock), Verdict::Out) {
            self.worker.stray(frame, ending);
        }
    }

    fn waited(&mut self, frame: &Frame, clock: u64, waited: InCall) {
        if frame.note < NOT_YET && !matches!(self.judge(frame.clock, clock), Verdict::Out) {
            self.worker.waited(frame, clock, waited);
        }
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], frames: &[Frame]) {
        let is_selected = match frames.last() {
            Some(frame) => frame.note < NOT_YET,
            None => self.filter.has_outside(),
        };
        let is_within = self.from.is_none_or(|from| clock > from)
            && self.until.is_none_or(|until| clock < until);
        if is_selected && is_within {
            self.worker
                .mark(clock, event, payload, self.selected(frames));
        }
    }

    /// The callers of these calls are not known.
    fn short(&mut self, clock: u64, site: u32, calls: u32) {
        let is_within = self.from.is_none_or(|from| clock > from)
            && self.until.is_none_or(|until| clock < until);
        if is_within && self.least_ns == 0 && self.filter.choice(site) == Choice::Yes {
            self.worker.short(clock, site, calls);
        }
    }

    fn missing(&mut self, clock: u64, ticks: u64) {
        let begins_before = |until| clock.saturating_sub(ticks) < until;
        if self.from.is_none_or(|from| clock > from) && self.until.is_none_or(begins_before) {
            self.worker.missing(clock, ticks);
        }
    }

    fn aside(&mut self, frames: &[Frame]) {
        self.worker.aside(self.selected(frames));
    }

    fn resume(&mut self, frames: &[Frame]) {
        self.worker.resume(self.selected(frames));
    }
}

impl Worker for Selected<'_> {
    fn times(&self) -> Times {
        self.worker.times()
    }

    fn takes_waits(&self) -> bool {
        self.worker.takes_waits()
    }

    fn begin(&mut self, stream: usize, thread: &ThreadInfo) {
        self.worker.begin(stream, thread);
    }

    fn pause(&mut self) -> Result<()> {
        self.worker.pause()
    }
}
