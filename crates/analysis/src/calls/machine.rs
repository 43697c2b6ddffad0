//! The state of one thread between two records.

use nopal_abi as abi;
use nopal_trace::{Packet, payload_words};

use super::credit::Credit;
use super::fibers::Fibers;
use super::frame::{Ending, Frame, Sink, Style};
use super::gaps::Known;
use super::stack::Stack;
use super::stacks::below;
use super::words::{clock_after, key_of, kind_of, take, take_words};

/// Calls deeper than this are counted only.
pub(super) const DEPTH_LIMIT: usize = 1 << 22;
/// Of more tail frames in one slot, each ends where the next begins.
const TAIL_LIMIT: usize = 256;
/// A call is estimated to be this near below its caller, unless the last event was further below.
pub(super) const NEAR: u64 = 1 << 8;

/// What a RESYNC said about the event that follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub slot: u64,
    /// The frames may not be those that the last event left.
    pub elsewhere: bool,
}

#[derive(Debug, Default)]
pub struct Machine {
    pub(super) frames: Stack,
    pub(super) fibers: Fibers,
    pub(super) arrival: Option<Arrival>,
    pub(super) last_clock: u64,
    /// Counter at the last entry or exit, and at the one before it.
    pub(super) event_clock: u64,
    pub(super) before: u64,
    /// Slot of the last event.
    pub(super) cursor: u64,
    /// Wrapped calls in progress that are deeper than the limit.
    pub(super) beyond: u64,
    pub(super) credit: Credit,
    pub(super) known: Known,
}

impl Machine {
    pub fn new() -> Machine {
        Machine::default()
    }

    /// The frames of the present stack, outermost first.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Counter at the last event.
    pub fn clock(&self) -> u64 {
        self.last_clock
    }

    /// Takes all records of a packet.
    pub fn packet<S: Sink>(&mut self, packet: &Packet, sink: &mut S) {
        let rest = self.begin_packet(packet, sink);
        self.words(rest, sink);
    }

    /// Takes records that come from no file. `lossy`: records before these are missing.
    pub fn records<S: Sink>(&mut self, words: &[u64], clock: u64, lossy: bool, sink: &mut S) {
        self.begin_words(words, clock, lossy, sink);
        self.words(words, sink);
    }

    pub(super) fn words<S: Sink>(&mut self, mut rest: &[u64], sink: &mut S) {
        loop {
            if S::RUNS {
                self.run(&mut rest, sink);
            }
            if !self.step(&mut rest, sink) {
                break;
            }
        }
    }

    /// The words of a packet, to be taken by steps.
    pub fn begin_packet<'a, S: Sink>(&mut self, packet: &Packet<'a>, sink: &mut S) -> &'a [u64] {
        self.begin_words(
            packet.words(),
            packet.clock_begin(),
            packet.is_behind_loss(),
            sink,
        );
        packet.words()
    }

    /// `lossy`: records before these are missing.
    pub(super) fn begin_words<S: Sink>(
        &mut self,
        words: &[u64],
        clock: u64,
        lossy: bool,
        sink: &mut S,
    ) {
        self.credit.earn(words.len());
        if lossy {
            self.open_gap(sink);
            self.known.astray = false;
        }
        self.last_clock = self.last_clock.max(clock);
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
            _ => {
                let is_understood = self.rare(word, rest, sink);
                if !is_understood {
                    self.open_gap(sink);
                }
                return is_understood;
            }
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
                self.open_gap(sink);
                self.known.astray = true;
                self.last_clock = clock_after(self.last_clock, word);
            }
            abi::KIND_EXTENDED if key_of(word) == abi::EVENT_RESYNC => {
                return self.resync(rest, sink);
            }
            abi::KIND_EXTENDED => return self.mark(word, rest, sink),
            _ => return false,
        }
        true
    }

    /// A marker is passed where the thread is, which after a jump is not in the frames below the place it came to.
    fn mark<S: Sink>(&mut self, word: u64, rest: &mut &[u64], sink: &mut S) -> bool {
        let Some(words) = payload_words(word, rest) else {
            return false;
        };
        let Some((payload, after)) = rest.get(1..).and_then(|all| all.split_at_checked(words))
        else {
            return false;
        };
        self.last_clock = self.last_clock.max(rest[0]);
        *rest = after;
        self.close_gap(self.last_clock, sink);
        let alive = match self.arrival {
            Some(arrival) if arrival.elsewhere => {
                let left = |frame: &&Frame| frame.slot < arrival.slot;
                self.frames.len() - self.frames.iter().rev().take_while(left).count()
            }
            _ => self.frames.len(),
        };
        sink.mark(
            self.last_clock,
            key_of(word),
            payload,
            &self.frames[..alive],
        );
        true
    }

    fn resync<S: Sink>(&mut self, rest: &mut &[u64], sink: &mut S) -> bool {
        const WORDS: usize = abi::RESYNC_BYTES / 8 - 1;
        let Some([clock, slot, _stack, _who, reason]) = take_words::<WORDS>(rest) else {
            return false;
        };
        self.last_clock = self.last_clock.max(clock);
        self.close_gap(self.last_clock, sink);
        if reason as u32 == abi::RESYNC_PART {
            return true;
        }
        let elsewhere = matches!(reason as u32, abi::RESYNC_STACK | abi::RESYNC_JUMP);
        let before = self.arrival.is_some_and(|arrival| arrival.elsewhere);
        self.find_place(elsewhere, sink);
        if elsewhere {
            self.known.elsewhere(self.last_clock);
        }
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
        self.before = self.event_clock;
        self.event_clock = self.last_clock;
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
        let (slot, is_exact) = match self.frames.last() {
            Some(top)
                if self.arrival.is_none()
                    && top.style() != Style::Only
                    && top.slot.wrapping_sub(self.cursor) <= NEAR =>
            {
                (below(top.slot, key), false)
            }
            _ => self.place(key, style, clock, sink),
        };
        if style == Style::Tail {
            self.bound_tails(slot, clock, sink);
        }
        self.cursor = slot;
        let frame = Frame::new(clock, slot, key, style);
        self.frames.push(match is_exact {
            true => frame.with_slot_known(),
            false => frame,
        });
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
    pub(super) fn finish<S: Sink>(&mut self, ending: Ending, sink: &mut S) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        let ticks = ending.clock.saturating_sub(frame.clock);
        self.cursor = frame.slot;
        match self.frames.last_mut() {
            Some(under) => under.child = under.child.saturating_add(ticks),
            None => self.known.spend(ticks),
        }
        sink.leave(&frame, ending, &self.frames);
    }

    /// The end of the thread's records.
    pub fn end<S: Sink>(&mut self, sink: &mut S) {
        self.lose_all(sink);
    }
}
