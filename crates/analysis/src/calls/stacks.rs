//! Finds the stack of an event, if the records permit several.

use nopal_abi::{Style, tag_of};

use super::callers::{Callers, NO_CALLERS};
use super::fibers::{Fiber, Key};
use super::frame::{Ending, Frame, Sink};
use super::rebuilder::{Arrival, CallRebuilder};
use super::slots::{above, below, nearest};

/// A frame set aside may be the caller of an entry at most this many slots below it (16 MiB).
const CALLER_DISTANCE: u64 = 1 << 20;
/// Frames that are no further apart than this are on one stack (16 KiB).
const NO_STACK_BETWEEN: u64 = 1 << 10;

impl CallRebuilder {
    /// Finds the slot of an entry that is not simply one call deeper, and whether it is certain; adjusts the frames.
    #[cold]
    pub(super) fn place(
        &mut self,
        key: u32,
        style: Style,
        clock: u64,
        sink: &mut dyn Sink,
    ) -> (u64, bool) {
        self.close_gap(clock, sink);
        let slot = match (self.arrival.take(), self.frames.last()) {
            (Some(arrival), _) => {
                if arrival.elsewhere {
                    self.arrive(arrival.slot, style, clock, sink);
                }
                self.drop_only(arrival.slot);
                return (arrival.slot, true);
            }
            (None, Some(top)) if top.style() == Style::Only => nearest(top.slot, key),
            (None, Some(_)) => nearest(self.cursor, key),
            (None, None) => {
                self.known.estimate();
                nearest(self.cursor, key)
            }
        };
        self.drop_only(slot);
        match self.frames.last() {
            Some(top) if top.slot < slot => (below(top.slot, key), false),
            _ => (slot, false),
        }
    }

    /// Rule 4: finds the frames under an entry at `slot` and sets the others aside.
    fn arrive(&mut self, slot: u64, style: Style, clock: u64, sink: &mut dyn Sink) {
        let highest_dead = if style == Style::Tail {
            slot.saturating_sub(1)
        } else {
            slot
        };
        self.give_up_overwritten(highest_dead, sink);
        let caller = |frame: &Frame| frame.slot > highest_dead;
        let mut kept = self
            .budget
            .search(&self.frames, caller)
            .map_or(0, |at| at + 1);
        let here = self.frames[..kept]
            .last()
            .map_or(u64::MAX, |caller| caller.slot - highest_dead);
        while let Some((distance, fiber)) = self.fibers.nearest_above(highest_dead)
            && distance < here.min(CALLER_DISTANCE)
        {
            if here > NO_STACK_BETWEEN {
                self.go_to(fiber, clock, sink);
                kept = self
                    .budget
                    .search(&self.frames, caller)
                    .map_or(0, |at| at + 1);
                break;
            }
            self.overwrite(fiber, highest_dead + here, sink);
        }
        let overwritten = self
            .frames
            .get(kept)
            .is_some_and(|frame| frame.slot == highest_dead);
        self.cut(kept, true, overwritten, clock, sink);
        self.doubt();
    }

    /// Drops the fiber whose outermost frame was in a slot that is another's now, as a finished coroutine's.
    fn give_up_overwritten(&mut self, slot: u64, sink: &mut dyn Sink) {
        let is_dead = |frames: &[Frame]| {
            let outermost = frames.first();
            outermost.is_some_and(|frame| frame.slot == slot && frame.is_exact())
                && one_stack(frames) == frames.len()
        };
        let around = self.fibers.around(slot);
        let dead = around.filter(|(_, frames)| is_dead(frames));
        let dead = dead.map(|(key, _)| key);
        if let Some(fiber) = dead.and_then(|key| self.fibers.remove(key)) {
            self.give_up(fiber.frames, fiber.alive, fiber.counted, sink);
        }
    }

    /// Ends the dead frames of a fiber: on the stack that goes on at `slot`, below the frame at `caller`.
    fn overwrite(&mut self, key: Key, caller: u64, sink: &mut dyn Sink) {
        let Some(Fiber {
            mut frames,
            callers,
            since,
            alive,
            counted,
        }) = self.fibers.remove(key)
        else {
            return;
        };
        let first = frames.partition_point(|frame| frame.slot >= caller);
        let end = first + one_stack(&frames[first..]);
        let beyond = if self.budget.pay(frames.len() - end) {
            frames.split_off(end)
        } else {
            Vec::new()
        };
        let callers_beyond = match beyond.is_empty() {
            true => NO_CALLERS,
            false => sink.callers(callers, &frames),
        };
        let mut dead = frames.split_off(first);
        let leave = |under: &mut [Frame], inner: &[Frame]| {
            if let (Some(under), Some(inner)) = (under.last_mut(), inner.first()) {
                under.child = under.child.saturating_add(inner.ticks_until(since));
            }
        };
        leave(&mut dead, &beyond);
        leave(&mut frames, &dead);
        self.give_up(dead, alive, counted, sink);
        for (frames, callers) in [(beyond, callers_beyond), (frames, callers)] {
            self.fibers.add(Fiber {
                frames,
                callers,
                since,
                alive,
                counted,
            });
        }
    }

    /// Rule 5.
    fn drop_only(&mut self, slot: u64) {
        while let Some(frame) = self
            .frames
            .pop_if(|frame| frame.style() == Style::Only && frame.slot <= slot)
        {
            if let Some(under) = self.frames.last_mut() {
                under.child = under.child.saturating_add(frame.child);
            }
        }
    }

    #[cold]
    pub(super) fn exit_elsewhere(&mut self, key: u32, ending: Ending, sink: &mut dyn Sink) {
        let behind_hole = self.known.is_open();
        self.close_gap(ending.clock, sink);
        let arrival = self.arrival.take();
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        if let Some(Arrival {
            slot,
            elsewhere: true,
        }) = arrival
        {
            let exactly = |frame: &Frame| frame.ends_with(key) && frame.slot == slot;
            if let Some(index) = self.budget.search(&self.frames, exactly) {
                return self.end_at(index, true, ending, sink);
            }
            if let Some((fiber, frames)) = self.fibers.around(slot)
                && let Some(index) = self.budget.search(frames, exactly)
            {
                self.go_to(fiber, ending.clock, sink);
                return self.end_at(index, false, ending, sink);
            }
        }
        // Slots are exact, or estimated too high: a lower one belongs to another frame.
        let lowest = match arrival {
            Some(Arrival {
                slot,
                elsewhere: true,
            }) => slot,
            _ => 0,
        };
        let suits = |frame: &Frame| frame.ends_with(key) && frame.slot >= lowest;
        if let Some(index) = self.budget.search(&self.frames, suits) {
            return self.end_at(index, false, ending, sink);
        }
        if let Some((fiber, index)) = self.search_aside(suits) {
            self.go_to(fiber, ending.clock, sink);
            return self.end_at(index, false, ending, sink);
        }
        // Where no call was open before, the estimate may be too low.
        let may_be = |frame: &Frame| frame.ends_with(key) && !frame.is_exact();
        if let Some(index) = self.budget.search(&self.frames, may_be) {
            return self.end_at(index, true, ending, sink);
        }
        if lowest > 0 {
            self.arrive(lowest, Style::Wrapped, ending.clock, sink);
        }
        // Calls without an exit may lie above the tail calls, and hide them.
        let has_exit = |frame: &&Frame| frame.style() != Style::Only;
        if let Some(top) = self.frames.iter().rfind(has_exit)
            && top.style() == Style::Tail
            && top.tag() == tag_of(key)
        {
            self.drop_only(u64::MAX);
        }
        while let Some(top) = self.frames.last()
            && top.style() == Style::Tail
            && top.tag() == tag_of(key)
        {
            self.finish(ending, sink);
        }
        self.cursor = match behind_hole {
            // The call may have begun there.
            true => nearest(self.cursor, key),
            false => above(self.cursor, key),
        };
        self.stray(key, ending, sink);
    }

    fn search_aside(&mut self, suits: impl Fn(&Frame) -> bool) -> Option<(Key, usize)> {
        for (fiber, frames) in self.fibers.iter() {
            if !self.budget.pay(1) {
                break;
            }
            if let Some(index) = self.budget.search(frames, &suits) {
                return Some((fiber, index));
            }
        }
        None
    }

    /// Rule 1: ends frame `index` of the present stack, to which the thread may have jumped.
    fn end_at(&mut self, index: usize, jumped: bool, ending: Ending, sink: &mut dyn Sink) {
        let Some(frame) = self.frames.get(index) else {
            return;
        };
        let tag = frame.tag();
        let above = &self.frames[index + 1..];
        let tails = above
            .iter()
            .take_while(|frame| frame.style() == Style::Tail && frame.tag() == tag)
            .count();
        self.cut(index + 1 + tails, jumped, false, ending.clock, sink);
        for _ in 0..=tails {
            self.finish(ending, sink);
        }
    }

    /// Takes the frames from `index` on off the present stack. If the thread has `jumped`, those on the same stack as
    /// the frame under them are dead; if they are `overwritten`, those on the stack of the first of them.
    fn cut(
        &mut self,
        index: usize,
        jumped: bool,
        overwritten: bool,
        clock: u64,
        sink: &mut dyn Sink,
    ) {
        let Some(&outermost) = self.frames.get(index) else {
            return;
        };
        let own_callers = self.frames.callers();
        let ticks = outermost.ticks_until(clock);
        let mut dead = overwritten;
        match index
            .checked_sub(1)
            .and_then(|under| self.frames.get_mut(under))
        {
            Some(under) => {
                under.child = under.child.saturating_add(ticks);
                dead |= jumped && is_near(under, &outermost);
            }
            None => self.known.spend(ticks),
        }
        let dead = if dead {
            one_stack(&self.frames[index..])
        } else {
            0
        };
        let left = self.frames.len() - index - dead;
        let only = || {
            self.frames[index + dead..]
                .iter()
                .all(|frame| frame.style() == Style::Only)
        };
        let is_lost = left == 0 || !self.budget.pay(left) || only();
        let (aside, callers) = if is_lost {
            (Vec::new(), NO_CALLERS)
        } else {
            let aside = self.frames.split_off(index + dead);
            let callers = match self.frames.is_empty() {
                true => own_callers,
                false => sink.callers(own_callers, &self.frames),
            };
            (aside, callers)
        };
        let lost = self.frames.split_off(index);
        if self.before < clock
            && lost.iter().any(|frame| frame.style() != Style::Only)
            && let Some(under) = self.frames.last_mut()
        {
            // They ended at an unknown time before now.
            under.bound();
        }
        self.give_up(lost, self.before, true, sink);
        self.set_aside(aside, callers, clock, sink);
    }

    /// Makes fibers of frames, one a stack. `callers` are those of the first.
    fn set_aside(
        &mut self,
        mut frames: Vec<Frame>,
        callers: Callers,
        clock: u64,
        sink: &mut dyn Sink,
    ) {
        if frames.is_empty() {
            return;
        }
        let counted = !self.budget.pay(3 * frames.len());
        let known = frames
            .iter()
            .map(|frame| self.known.alive(frame, self.before));
        let alive = known.min().unwrap_or(self.before);
        if !counted {
            sink.aside(&frames);
            while let Some(at) = frames
                .windows(2)
                .rposition(|pair| !is_near(&pair[0], &pair[1]))
            {
                let part = frames.split_off(at + 1);
                frames[at].child = frames[at].child.saturating_add(part[0].ticks_until(clock));
                self.fibers.add(Fiber {
                    frames: part,
                    callers: sink.callers(callers, &frames),
                    since: clock,
                    alive,
                    counted,
                });
            }
        }
        self.fibers.add(Fiber {
            frames,
            callers,
            since: clock,
            alive,
            counted,
        });
        for fiber in self.fibers.surplus() {
            self.give_up(fiber.frames, fiber.alive, fiber.counted, sink);
        }
    }

    /// Makes a fiber the present stack, and the present stack a fiber.
    fn go_to(&mut self, key: Key, clock: u64, sink: &mut dyn Sink) {
        let Some(fiber) = self.fibers.remove(key) else {
            return;
        };
        let callers = self.frames.callers();
        let left = self.frames.replace(&fiber.frames, fiber.callers);
        self.set_aside(left, callers, clock, sink);
        if let Some(top) = self.frames.last_mut() {
            top.child = top.child.saturating_add(clock.saturating_sub(fiber.since));
        }
        if !fiber.counted {
            sink.resume(&self.frames);
        }
    }
}

/// Whether the second frame is certainly on the same stack as the first.
fn is_near(under: &Frame, frame: &Frame) -> bool {
    under.slot.saturating_sub(frame.slot) <= NO_STACK_BETWEEN
}

/// The number of frames, from the first on, that are on one stack.
fn one_stack(frames: &[Frame]) -> usize {
    let together = frames
        .windows(2)
        .take_while(|pair| is_near(&pair[0], &pair[1]))
        .count();
    if frames.is_empty() { 0 } else { together + 1 }
}
