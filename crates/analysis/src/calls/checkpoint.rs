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
        self.reopen_others(past, sink, |_| None);
    }

    /// The same, without those of which the sink knows: they have these notes.
    pub fn reopen_others(
        &mut self,
        past: &mut Past,
        sink: &mut dyn Sink,
        known: impl Fn(&Frame) -> Option<u32>,
    ) {
        let mut reopening = Reopening { past, sink, known };
        let begin = |frames: &[Frame]| frames.first().map_or(u64::MAX, |frame| frame.clock);
        let now = begin(&self.frames);
        let mut aside: Vec<&mut Fiber> = self.fibers.iter_mut().collect();
        aside.sort_by_key(|fiber| begin(&fiber.frames));
        let older = aside.partition_point(|fiber| begin(&fiber.frames) < now);
        let (older, newer) = aside.split_at_mut(older);
        for fiber in older {
            reopening.reopen_aside(fiber);
        }
        let callers = self.frames.callers();
        reopening.reopen(&mut self.frames, callers);
        for fiber in newer {
            reopening.reopen_aside(fiber);
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
        let is_unknown =
            |frame: &Frame| frame.clock < clock && self.known.alive(frame, clock) < clock;
        self.before >= clock && self.fibers.is_empty() && !self.frames.iter().any(is_unknown)
    }

    /// Whether those calls have ended that began before `clock` and that are waited for, and no later record can tell more
    /// of the time before, except exits of calls whose entries are not known.
    pub fn has_ended(&self, clock: u64, awaits: impl Fn(u32) -> bool) -> bool {
        self.before >= clock && self.awaited(clock, awaits).next().is_none()
    }

    /// The open calls of all stacks that began before `clock`, of the sites that `awaits` names.
    pub fn awaited(
        &self,
        clock: u64,
        awaits: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = &Frame> {
        let frames = self.all_frames();
        frames.filter(move |frame| frame.clock < clock && awaits(frame.site()))
    }

    /// The open calls of all stacks.
    pub(super) fn all_frames(&self) -> impl Iterator<Item = &Frame> {
        let aside = self.fibers.fibers().flat_map(|fiber| &fiber.frames);
        self.frames.iter().chain(aside)
    }
}

/// Passes open calls to another sink.
struct Reopening<'a, K> {
    past: &'a mut Past,
    sink: &'a mut dyn Sink,
    /// The notes of the calls of which the sink knows.
    known: K,
}

impl<K: Fn(&Frame) -> Option<u32>> Reopening<'_, K> {
    /// The calls of a stack that the thread has left.
    fn reopen_aside(&mut self, fiber: &mut Fiber) {
        self.reopen(&mut fiber.frames, fiber.callers);
        if !fiber.counted {
            self.sink.aside(&fiber.frames);
        }
    }

    /// The calls of a stack.
    fn reopen(&mut self, frames: &mut [Frame], callers: Callers) {
        let mut open = Vec::with_capacity(frames.len());
        for caller in self.past.callers.named(callers) {
            open.push(caller.frame);
            let note = self.sink.note_of_caller(&open, caller.arguments);
            if let Some(caller) = open.last_mut() {
                caller.note = note;
            }
        }
        for frame in frames {
            let arguments = self.past.take(frame);
            frame.note = 0;
            open.push(*frame);
            let known = (self.known)(frame);
            frame.note = known.unwrap_or_else(|| self.sink.reopen(&open, arguments));
            if let Some(last) = open.last_mut() {
                last.note = frame.note;
            }
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
