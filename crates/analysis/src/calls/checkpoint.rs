//! The state of a rebuilder between two packets, from which a reader can begin.

use anyhow::{Result, ensure};

use super::callers::{Callers, UNKNOWN_CALLERS};
use super::fibers::Fiber;
use super::frame::{Frame, Sink};
use super::past::Past;
use super::rebuilder::{CallRebuilder, DEPTH_LIMIT};

impl CallRebuilder {
    /// The state, for [`CallRebuilder::resume`]. Its length grows with the number of open calls.
    pub fn checkpoint(&mut self, past: &mut Past) -> Result<Vec<u8>> {
        self.forget_callers(past);
        Ok(postcard::to_stdvec(&(self, past))?)
    }

    /// A rebuilder in the state that [`CallRebuilder::checkpoint`] gave, and the past. Any other bytes are refused, or
    /// give a state that is wrong but safe to use.
    pub fn resume(checkpoint: &[u8]) -> Result<(CallRebuilder, Past)> {
        let (rebuilder, past): (CallRebuilder, Past) = postcard::from_bytes(checkpoint)?;
        let depth = rebuilder.frames.len();
        let is_known = |name| name == UNKNOWN_CALLERS || past.callers.has(name);
        let is_sound = rebuilder.fibers.is_sound()
            && past.is_sound()
            && rebuilder.all_callers().all(is_known)
            && depth <= DEPTH_LIMIT
            && rebuilder.stay.is_none_or(|stay| stay.from <= depth);
        ensure!(is_sound, "no state of calls");
        Ok((rebuilder, past))
    }

    /// Drops what `past` knows of callers of stacks that are no more, unless that is little.
    pub fn forget_old_callers(&mut self, past: &mut Past) {
        if past.callers.has_surplus() {
            self.forget_callers(past);
        }
    }

    fn forget_callers(&mut self, past: &mut Past) {
        let present = self.frames.callers();
        let mut all: Vec<&mut Callers> = vec![self.frames.callers_mut()];
        *all[0] = present;
        all.extend(self.fibers.iter_mut().map(|fiber| &mut fiber.callers));
        past.callers.keep_only(&mut all);
    }

    fn all_callers(&self) -> impl Iterator<Item = Callers> {
        let aside = self.fibers.fibers().map(|fiber| fiber.callers);
        aside.chain([self.frames.callers()])
    }

    /// Whether the open calls can be given to another sink as if it had received all records: the callers of all stacks
    /// are known. A jump may have ended some of the calls: the state says which.
    pub fn can_reopen(&self) -> bool {
        self.all_callers().all(|name| name != UNKNOWN_CALLERS)
    }

    /// Passes the open calls to another sink, as if they had begun just now: in the order of their begins, stack by
    /// stack.
    pub fn reopen(&mut self, past: &mut Past, sink: &mut dyn Sink) {
        sink.begin_at(self.last_clock);
        let begin = |frames: &[Frame]| frames.first().map_or(u64::MAX, |frame| frame.clock);
        let now = begin(&self.frames);
        let mut aside: Vec<&mut Fiber> = self.fibers.iter_mut().collect();
        aside.sort_by_key(|fiber| begin(&fiber.frames));
        let older = aside.partition_point(|fiber| begin(&fiber.frames) < now);
        let (older, newer) = aside.split_at_mut(older);
        for fiber in older {
            reopen_aside(fiber, past, sink);
        }
        let callers = self.frames.callers();
        reopen(&mut self.frames, callers, past, sink);
        for fiber in newer {
            reopen_aside(fiber, past, sink);
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

    /// Whether the last records show that all calls were open at `clock`, which began before.
    pub fn has_gone_on(&self, clock: u64) -> bool {
        self.has_passed(clock, |frame| self.known.alive(frame, clock) < clock)
    }

    /// Whether no later record can tell more of the time before `clock`, except exits of calls whose entries are not
    /// known. It does not matter when calls end whose sites `awaits` does not name.
    pub fn has_ended(&self, clock: u64, awaits: impl Fn(u32) -> bool) -> bool {
        self.has_passed(clock, |frame| awaits(frame.site()))
    }

    fn has_passed(&self, clock: u64, is_wanted: impl Fn(&Frame) -> bool) -> bool {
        let is_wanted = |frame: &Frame| frame.clock < clock && is_wanted(frame);
        self.fibers.is_empty() && self.before >= clock && !self.frames.iter().any(is_wanted)
    }

    /// The open calls of all stacks.
    pub(super) fn all_frames(&self) -> impl Iterator<Item = &Frame> {
        let aside = self.fibers.fibers().flat_map(|fiber| &fiber.frames);
        self.frames.iter().chain(aside)
    }
}

/// Passes the calls of a stack that the thread has left to another sink.
fn reopen_aside(fiber: &mut Fiber, past: &mut Past, sink: &mut dyn Sink) {
    reopen(&mut fiber.frames, fiber.callers, past, sink);
    if !fiber.counted {
        sink.aside(&fiber.frames);
    }
}

/// Passes the calls of a stack to another sink.
fn reopen(frames: &mut [Frame], callers: Callers, past: &mut Past, sink: &mut dyn Sink) {
    let mut open = Vec::with_capacity(frames.len());
    for caller in past.callers.named(callers) {
        open.push(caller.frame);
        let note = sink.note_of_caller(&open, caller.arguments);
        if let Some(caller) = open.last_mut() {
            caller.note = note;
        }
    }
    for frame in frames {
        let arguments = past.take(frame);
        frame.note = 0;
        open.push(*frame);
        frame.note = sink.reopen(&open, arguments);
        if let Some(last) = open.last_mut() {
            last.note = frame.note;
        }
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
