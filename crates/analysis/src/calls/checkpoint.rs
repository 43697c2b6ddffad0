//! The state of a rebuilder between two packets, from which a reader can begin.

use anyhow::{Result, ensure};

use super::fibers::{Callers, Fiber};
use super::frame::{Frame, Sink};
use super::known::BEGIN;
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

    /// Whether the open calls can be given to another sink as if it had received all records: none is known to have
    /// ended, and the callers of each stack are known.
    pub fn can_reopen(&self) -> bool {
        let is_alive = |frame: &Frame| self.known.alive(frame, BEGIN) == BEGIN;
        let is_known =
            |fiber: &Fiber| fiber.callers.known().is_some() && fiber.frames.iter().all(is_alive);
        self.callers().known().is_some()
            && self.frames.iter().all(is_alive)
            && self.fibers.fibers().all(is_known)
    }

    /// Passes the open calls to another sink, as if they had begun just now: in the order of their begins,
    /// stack by stack.
    pub fn reopen(&mut self, past: &mut Past, sink: &mut dyn Sink) {
        sink.begin_at(self.last_clock);
        let callers = self.callers().clone();
        let clock = |frames: &[Frame]| frames.first().map_or(u64::MAX, |frame| frame.clock);
        let mut fibers: Vec<&mut Fiber> = self.fibers.fibers_mut().collect();
        fibers.sort_by_key(|fiber| clock(&fiber.frames));
        let now = clock(&self.frames);
        let older = fibers.partition_point(|fiber| clock(&fiber.frames) < now);
        let (older, newer) = fibers.split_at_mut(older);
        older
            .iter_mut()
            .for_each(|fiber| reopen_aside(fiber, past, sink));
        reopen(&mut self.frames, &callers, past, sink);
        newer
            .iter_mut()
            .for_each(|fiber| reopen_aside(fiber, past, sink));
    }

    /// Moves the past up to `clock`, if [`CallRebuilder::can_reopen`]. Calls that ended in the open ones then take no
    /// time.
    pub fn move_to(&mut self, clock: u64) {
        let resumed = self.callers().clone();
        for fiber in self.fibers.fibers_mut() {
            fiber.since = fiber.since.max(clock);
            fiber.alive = fiber.alive.max(clock);
        }
        let aside = self.fibers.fibers_mut().flat_map(|fiber| &mut fiber.frames);
        for frame in self.frames.iter_mut().chain(aside) {
            frame.clock = frame.clock.max(clock);
            frame.child = 0;
        }
        self.resumed = self.frames.first().map(|frame| (frame.clock, resumed));
        let known = &mut self.known;
        known.since = known.since.max(clock);
        known.gap = known.gap.map(|gap| gap.max(clock));
        known.spent = 0;
        known.doubts.clear();
        if let Some(stay) = &mut self.stay {
            stay.since = stay.since.max(clock);
        }
        self.last_clock = self.last_clock.max(clock);
        self.event_clock = self.event_clock.max(clock);
        self.before = self.before.max(clock);
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

/// Passes the calls of a stack that the thread has left to another sink.
fn reopen_aside(fiber: &mut Fiber, past: &mut Past, sink: &mut dyn Sink) {
    reopen(&mut fiber.frames, &fiber.callers, past, sink);
    if !fiber.counted {
        sink.aside(&fiber.frames);
    }
}

/// Passes the calls of a stack to another sink.
fn reopen(frames: &mut [Frame], callers: &Callers, past: &mut Past, sink: &mut dyn Sink) {
    let mut open = Vec::with_capacity(frames.len());
    for caller in callers.known().unwrap_or_default() {
        open.push(*caller);
        let note = sink.note_of_caller(&open);
        if let Some(caller) = open.last_mut() {
            caller.note = note;
        }
    }
    let under = open.len();
    for frame in frames {
        let arguments = past.take(frame);
        frame.note = 0;
        open.push(*frame);
        frame.note = sink.reopen(&open, arguments);
        if let Some(last) = open[under..].last_mut() {
            last.note = frame.note;
        }
    }
}
