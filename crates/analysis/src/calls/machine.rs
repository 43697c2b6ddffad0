//! The state of one thread between two records.

use nopal_abi as abi;
use nopal_trace::Packet;

use super::credit::Credit;
use super::fibers::{Fiber, Fibers, Key};
use super::frame::{Ending, Frame, Sink, Style};
use super::words::{clock_after, key_of, kind_of, tag_of, take, take_words};

/// Calls deeper than this are counted only.
const DEPTH_LIMIT: usize = 1 << 22;
/// Of more tail frames in one slot, each ends where the next begins.
const TAIL_LIMIT: usize = 256;
/// A call is estimated to be this near below its caller, unless the last event was further below.
const NEAR: u64 = 1 << 8;
/// A frame set aside is taken for the caller of an entry at most this many slots below it (16 MiB).
const CALLER_DISTANCE: u64 = 1 << 20;
/// Frames of two stacks are not as near to each other as this, with a frame of a third one between them (16 KiB).
const NO_STACK_BETWEEN: u64 = 1 << 10;

/// What a RESYNC said about the event that follows it.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    slot: u64,
    /// The frames may not be those that the last event left.
    elsewhere: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Machine {
    frames: Vec<Frame>,
    fibers: Fibers,
    arrival: Option<Arrival>,
    last_clock: u64,
    /// Slot of the last event.
    cursor: u64,
    /// Wrapped calls in progress that are deeper than the limit.
    beyond: u64,
    credit: Credit,
    lossy: bool,
}

impl Machine {
    pub fn new() -> Machine {
        Machine::default()
    }

    /// The frames of the present stack, outermost first.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// All frames that the sink takes for alive.
    pub fn counted(&self) -> impl Iterator<Item = &Frame> {
        let aside = self.fibers.all().filter(|fiber| fiber.counted);
        self.frames
            .iter()
            .chain(aside.flat_map(|fiber| &fiber.frames))
    }

    /// Counter at the last event.
    pub fn clock(&self) -> u64 {
        self.last_clock
    }

    /// Takes all records of a packet.
    pub fn packet<S: Sink>(&mut self, packet: &Packet, sink: &mut S) {
        let mut rest = self.begin_packet(packet);
        while self.step(&mut rest, sink) {}
    }

    /// The words of a packet, to be taken by steps.
    pub fn begin_packet<'a>(&mut self, packet: &Packet<'a>) -> &'a [u64] {
        let lossy = packet.lost_before() > 0 || packet.missing_before() > 0;
        self.begin_words(packet.words(), packet.clock_begin(), lossy);
        packet.words()
    }

    /// `lossy`: records before these are missing.
    pub(super) fn begin_words(&mut self, words: &[u64], clock: u64, lossy: bool) {
        self.credit.earn(words.len());
        self.last_clock = self.last_clock.max(clock);
        self.lossy |= lossy;
    }

    /// Takes one record off the front of `rest`; false at the end, or where nothing more can be understood.
    #[inline(always)]
    pub fn step<S: Sink>(&mut self, rest: &mut &[u64], sink: &mut S) -> bool {
        let Some(word) = take(rest) else {
            return false;
        };
        match kind_of(word) {
            abi::KIND_ENTRY => {
                let clock = self.tick(word);
                self.enter(key_of(word), Style::Wrapped, clock, None, sink);
            }
            abi::KIND_EXIT => {
                let clock = self.tick(word);
                self.exit(
                    key_of(word),
                    Ending {
                        clock,
                        result: None,
                        unwound: false,
                    },
                    sink,
                );
            }
            _ => return self.rare(word, rest, sink),
        }
        true
    }

    fn rare<S: Sink>(&mut self, word: u64, rest: &mut &[u64], sink: &mut S) -> bool {
        let style = match kind_of(word) {
            abi::KIND_TAIL | abi::KIND_TAIL_ARGS => Style::Tail,
            abi::KIND_ONLY | abi::KIND_ONLY_ARGS => Style::Only,
            _ => Style::Wrapped,
        };
        match kind_of(word) {
            abi::KIND_TAIL | abi::KIND_ONLY => {
                let clock = self.tick(word);
                self.enter(key_of(word), style, clock, None, sink);
            }
            abi::KIND_ENTRY_ARGS | abi::KIND_TAIL_ARGS | abi::KIND_ONLY_ARGS => {
                let Some(arguments) = take_words(rest) else {
                    return false;
                };
                let clock = self.tick(word);
                self.enter(key_of(word), style, clock, Some(arguments), sink);
            }
            abi::KIND_PENDING_ARGS => {
                if take_words::<{ abi::ARGUMENTS }>(rest).is_none() {
                    return false;
                }
                let clock = self.tick(word);
                self.enter(key_of(word), style, clock, None, sink);
            }
            kind @ (abi::KIND_EXIT_RESULT | abi::KIND_PENDING_RESULT) => {
                let Some(result) = take(rest) else {
                    return false;
                };
                let result = (kind == abi::KIND_EXIT_RESULT).then_some(result);
                let clock = self.tick(word);
                self.exit(
                    key_of(word),
                    Ending {
                        clock,
                        result,
                        unwound: false,
                    },
                    sink,
                );
            }
            abi::KIND_UNWIND => {
                let clock = self.tick(word);
                self.exit(
                    key_of(word),
                    Ending {
                        clock,
                        result: None,
                        unwound: true,
                    },
                    sink,
                );
            }
            abi::KIND_HOLE => {
                self.tick(word);
            }
            abi::KIND_EXTENDED => return self.resync(word, rest),
            _ => return false,
        }
        true
    }

    fn resync(&mut self, word: u64, rest: &mut &[u64]) -> bool {
        const WORDS: usize = abi::RESYNC_BYTES / 8 - 1;
        if key_of(word) != abi::EVENT_RESYNC {
            return false;
        }
        let Some([clock, slot, _stack, _who, reason]) = take_words::<WORDS>(rest) else {
            return false;
        };
        let elsewhere = matches!(reason as u32, abi::RESYNC_STACK | abi::RESYNC_JUMP) || self.lossy;
        let before = self.arrival.is_some_and(|arrival| arrival.elsewhere);
        self.lossy = false;
        self.last_clock = self.last_clock.max(clock);
        self.cursor = slot >> 4;
        self.arrival = Some(Arrival {
            slot: slot >> 4,
            elsewhere: elsewhere || before,
        });
        true
    }

    #[inline(always)]
    fn tick(&mut self, word: u64) -> u64 {
        self.last_clock = clock_after(self.last_clock, word);
        self.last_clock
    }

    #[inline(always)]
    fn enter<S: Sink>(
        &mut self,
        key: u32,
        style: Style,
        clock: u64,
        arguments: Option<[u64; 6]>,
        sink: &mut S,
    ) {
        let slot = match self.frames.last() {
            Some(top)
                if self.arrival.is_none()
                    && top.style() != Style::Only
                    && top.slot.wrapping_sub(self.cursor) <= NEAR =>
            {
                below(top.slot, key)
            }
            _ => self.place(key, style, clock, sink),
        };
        if style == Style::Tail {
            self.bound_tails(slot, clock, sink);
        }
        self.cursor = slot;
        self.frames.push(Frame::new(clock, slot, key, style));
        let note = sink.enter(&self.frames, arguments);
        if let Some(frame) = self.frames.last_mut() {
            frame.note = note;
        }
        if self.frames.len() > DEPTH_LIMIT {
            self.forget_deepest(sink);
        }
    }

    #[cold]
    fn forget_deepest<S: Sink>(&mut self, sink: &mut S) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        if frame.style() != Style::Only {
            sink.lose(&frame, frame.clock, true);
        }
        self.beyond += u64::from(frame.style() == Style::Wrapped);
    }

    fn bound_tails<S: Sink>(&mut self, slot: u64, clock: u64, sink: &mut S) {
        let earlier = self
            .frames
            .len()
            .checked_sub(TAIL_LIMIT)
            .and_then(|index| self.frames.get(index));
        if earlier.is_some_and(|frame| frame.style() == Style::Tail && frame.slot == slot) {
            self.finish(
                Ending {
                    clock,
                    result: None,
                    unwound: false,
                },
                sink,
            );
        }
    }

    /// The slot of an entry that is not simply one call deeper; makes the frames right for it.
    #[cold]
    fn place<S: Sink>(&mut self, key: u32, style: Style, clock: u64, sink: &mut S) -> u64 {
        let slot = match (self.arrival.take(), self.frames.last()) {
            (Some(arrival), _) => {
                if arrival.elsewhere {
                    self.arrive(arrival.slot, style, clock, sink);
                }
                self.drop_only(arrival.slot);
                return arrival.slot;
            }
            (None, Some(top)) if top.style() == Style::Only => nearest(top.slot, key),
            (None, _) => nearest(self.cursor, key),
        };
        self.drop_only(slot);
        match self.frames.last() {
            Some(top) if top.slot < slot => below(top.slot, key),
            _ => slot,
        }
    }

    /// Rule 4: finds the frames under an entry at `slot` and sets the others aside.
    fn arrive<S: Sink>(&mut self, slot: u64, style: Style, clock: u64, sink: &mut S) {
        let highest_dead = if style == Style::Tail {
            slot.saturating_sub(1)
        } else {
            slot
        };
        let caller = |frame: &Frame| frame.slot > highest_dead;
        let mut kept = self
            .credit
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
                    .credit
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
    }

    /// Of a fiber, the frames on the stack that goes on at `slot`, below one at `caller`, are dead.
    fn overwrite<S: Sink>(&mut self, key: Key, caller: u64, sink: &mut S) {
        let Some(Fiber {
            mut frames,
            since,
            counted,
        }) = self.fibers.remove(key)
        else {
            return;
        };
        let first = frames.partition_point(|frame| frame.slot >= caller);
        let end = first + one_stack(&frames[first..]);
        let beyond = if self.credit.pay(frames.len() - end) {
            frames.split_off(end)
        } else {
            Vec::new()
        };
        lose(&mut frames, first, since, counted, sink);
        self.fibers.add(Fiber {
            frames: beyond,
            since,
            counted,
        });
        self.fibers.add(Fiber {
            frames,
            since,
            counted,
        });
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

    #[inline(always)]
    fn exit<S: Sink>(&mut self, key: u32, ending: Ending, sink: &mut S) {
        match self.frames.last() {
            Some(top)
                if top.ends_with(key)
                    && self.arrival.is_none_or(|arrival| !arrival.elsewhere)
                    && self.beyond == 0 =>
            {
                self.arrival = None;
                self.finish(ending, sink);
            }
            _ => self.exit_elsewhere(key, ending, sink),
        }
    }

    /// Ends the topmost frame.
    #[inline(always)]
    fn finish<S: Sink>(&mut self, ending: Ending, sink: &mut S) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        let ticks = ending.clock.saturating_sub(frame.clock);
        self.cursor = frame.slot;
        if let Some(under) = self.frames.last_mut() {
            under.child = under.child.saturating_add(ticks);
        }
        sink.leave(&frame, ending, &self.frames);
    }

    #[cold]
    fn exit_elsewhere<S: Sink>(&mut self, key: u32, ending: Ending, sink: &mut S) {
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
            if let Some(index) = self.credit.search(&self.frames, exactly) {
                return self.end_at(index, true, ending, sink);
            }
            if let Some((fiber, frames)) = self.fibers.around(slot)
                && let Some(index) = self.credit.search(frames, exactly)
            {
                self.go_to(fiber, ending.clock, sink);
                return self.end_at(index, false, ending, sink);
            }
        }
        if let Some(index) = self
            .credit
            .search(&self.frames, |frame| frame.ends_with(key))
        {
            return self.end_at(index, false, ending, sink);
        }
        if let Some((fiber, index)) = self.search_aside(key) {
            self.go_to(fiber, ending.clock, sink);
            return self.end_at(index, false, ending, sink);
        }
        while let Some(top) = self.frames.last()
            && top.style() == Style::Tail
            && top.tag() == tag_of(key)
        {
            self.finish(ending, sink);
        }
        self.cursor = above(self.cursor, key);
        sink.stray(key, ending);
    }

    fn search_aside(&mut self, key: u32) -> Option<(Key, usize)> {
        for (fiber, frames) in self.fibers.iter() {
            if !self.credit.pay(1) {
                break;
            }
            if let Some(index) = self.credit.search(frames, |frame| frame.ends_with(key)) {
                return Some((fiber, index));
            }
        }
        None
    }

    /// Rule 1: ends frame `index` of the present stack, to which the thread may have jumped.
    fn end_at<S: Sink>(&mut self, index: usize, jumped: bool, ending: Ending, sink: &mut S) {
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

    /// Takes the frames from `index` on off the present stack. Those on the same stack as the one under them are dead
    /// if the thread has `jumped`; if they are `overwritten`, those on the stack of the first are.
    fn cut<S: Sink>(
        &mut self,
        index: usize,
        jumped: bool,
        overwritten: bool,
        clock: u64,
        sink: &mut S,
    ) {
        let Some(&outermost) = self.frames.get(index) else {
            return;
        };
        let ticks = ticks_in(&outermost, clock);
        let mut dead = overwritten;
        if let Some(under) = index
            .checked_sub(1)
            .and_then(|under| self.frames.get_mut(under))
        {
            under.child = under.child.saturating_add(ticks);
            dead |= jumped && is_near(under, &outermost);
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
        let is_lost = left == 0 || !self.credit.pay(left) || only();
        let aside = if is_lost {
            Vec::new()
        } else {
            self.frames.split_off(index + dead)
        };
        lose(&mut self.frames, index, clock, true, sink);
        self.set_aside(aside, clock, sink);
    }

    /// Makes fibers of frames, one a stack.
    fn set_aside<S: Sink>(&mut self, mut frames: Vec<Frame>, clock: u64, sink: &mut S) {
        if frames.is_empty() {
            return;
        }
        let counted = !self.credit.pay(2 * frames.len());
        if !counted {
            sink.aside(&frames);
            while let Some(at) = frames
                .windows(2)
                .rposition(|pair| !is_near(&pair[0], &pair[1]))
            {
                let part = frames.split_off(at + 1);
                frames[at].child = frames[at].child.saturating_add(ticks_in(&part[0], clock));
                self.fibers.add(Fiber {
                    frames: part,
                    since: clock,
                    counted,
                });
            }
        }
        self.fibers.add(Fiber {
            frames,
            since: clock,
            counted,
        });
        for mut fiber in self.fibers.surplus() {
            lose(&mut fiber.frames, 0, fiber.since, fiber.counted, sink);
        }
    }

    /// Makes a fiber the present stack, and the present stack a fiber.
    fn go_to<S: Sink>(&mut self, key: Key, clock: u64, sink: &mut S) {
        let Some(fiber) = self.fibers.remove(key) else {
            return;
        };
        let left = std::mem::replace(&mut self.frames, fiber.frames);
        self.set_aside(left, clock, sink);
        if let Some(top) = self.frames.last_mut() {
            top.child = top.child.saturating_add(clock.saturating_sub(fiber.since));
        }
        if !fiber.counted {
            sink.resume(&self.frames);
        }
    }

    /// The end of the thread's records.
    pub fn end<S: Sink>(&mut self, sink: &mut S) {
        let clock = self.last_clock;
        lose(&mut self.frames, 0, clock, true, sink);
        for mut fiber in self.fibers.drain() {
            lose(&mut fiber.frames, 0, fiber.since, fiber.counted, sink);
        }
    }
}

/// Gives up the frames from `index` on.
fn lose<S: Sink>(frames: &mut Vec<Frame>, index: usize, clock: u64, counted: bool, sink: &mut S) {
    while frames.len() > index
        && let Some(frame) = frames.pop()
    {
        if frame.style() != Style::Only {
            sink.lose(&frame, clock, counted);
        }
        if let Some(under) = frames[index..].last_mut() {
            under.child = under.child.saturating_add(ticks_in(&frame, clock));
        }
    }
}

/// What a frame that is left at `clock` adds to the time in the one under it.
fn ticks_in(frame: &Frame, clock: u64) -> u64 {
    match frame.style() {
        Style::Only => frame.child,
        Style::Wrapped | Style::Tail => clock.saturating_sub(frame.clock),
    }
}

/// Whether the second frame is on the same stack as the first, for sure.
fn is_near(under: &Frame, frame: &Frame) -> bool {
    under.slot.saturating_sub(frame.slot) <= NO_STACK_BETWEEN
}

/// How many of the frames, from the first on, are on one stack.
fn one_stack(frames: &[Frame]) -> usize {
    let together = frames
        .windows(2)
        .take_while(|pair| is_near(&pair[0], &pair[1]))
        .count();
    if frames.is_empty() { 0 } else { together + 1 }
}

/// The highest slot of the key's tag that is not above `slot`.
fn below(slot: u64, key: u32) -> u64 {
    slot.wrapping_sub(slot.wrapping_sub(u64::from(tag_of(key))) & 0xff)
}

/// The lowest slot of the key's tag that is not below `slot`.
fn above(slot: u64, key: u32) -> u64 {
    slot.wrapping_add(u64::from(tag_of(key)).wrapping_sub(slot) & 0xff)
}

/// The slot of the key's tag nearest to `slot`.
fn nearest(slot: u64, key: u32) -> u64 {
    let down = slot.wrapping_sub(u64::from(tag_of(key))) & 0xff;
    if down < 0x80 {
        slot.wrapping_sub(down)
    } else {
        slot.wrapping_add(0x100 - down)
    }
}
