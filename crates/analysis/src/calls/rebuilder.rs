//! Rebuilds a thread's calls from its records: the call stack between two records.

use nopal_abi::{self as abi, Cursor, Event, Style, Word, key_of, tag_of};
use nopal_trace::{OpenCall, Packet, Place};
use serde::{Deserialize, Serialize};

use super::budget::WorkBudget;
use super::callers::NO_CALLERS;
use super::fibers::{Fiber, Fibers};
use super::frame::{Ending, Frame, Sink};
use super::known::{BEGIN, Known};
use super::slots::below;
use super::stack::Stack;
use super::stay::Stay;

/// Deeper calls are only counted.
pub(super) const DEPTH_LIMIT: usize = 1 << 22;
/// With more tail frames in one slot, each ends where the next begins.
const TAIL_LIMIT: usize = 256;
/// A call is estimated to be this near below its caller, unless the last event was further below.
pub(super) const NEAR: u64 = 1 << 8;

/// The data of a RESYNC for the event that follows it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Arrival {
    pub slot: u64,
    /// The present frames may differ from those after the last event.
    pub elsewhere: bool,
}

/// The kind of a record that is neither a call nor a return.
enum NoCall {
    Taken,
    /// The sink knows it. Its entry is next and must be taken at once: no run of plain calls may begin with it.
    CallSite,
    /// It cannot be decoded.
    End,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CallRebuilder {
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
    pub(super) budget: WorkBudget,
    pub(super) known: Known,
    /// Set while the thread is in the kernel.
    pub(super) stay: Option<Stay>,
    /// Recording was stopped at the next records.
    pub(super) is_stopped: bool,
}

impl CallRebuilder {
    pub fn new() -> CallRebuilder {
        CallRebuilder::default()
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
        let records = self.begin_packet(packet, sink);
        self.words(records, sink);
    }

    /// Begins with a packet whose records are taken with other clocks, the first of which is `clock`. Times from `from`
    /// on are wanted.
    pub fn begin_packet_with(
        &mut self,
        packet: &Packet,
        words: &[u64],
        from: u64,
        clock: u64,
        sink: &mut dyn Sink,
    ) {
        self.unwrap(packet, sink);
        self.turn(packet.is_of_kernel(), clock, sink);
        self.pass_stop(packet, clock);
        self.begin_words(words, clock, packet.is_behind_loss(), sink);
        self.begin_open(packet, from, clock, sink);
    }

    /// Takes records that are in no file. `lossy`: records before these are missing.
    pub fn records<S: Sink>(&mut self, words: &[u64], clock: u64, lossy: bool, sink: &mut S) {
        self.begin_words(words, clock, lossy, sink);
        self.words(Cursor::new(words), sink);
    }

    /// Takes records up to the last of `after` words. A call site is taken with its entry.
    pub fn up_to<S: Sink>(&mut self, records: &mut Cursor, after: usize, sink: &mut S) {
        while records.rest().len() > after && self.step(records, sink) {}
    }

    pub fn words<S: Sink>(&mut self, mut records: Cursor, sink: &mut S) {
        loop {
            if sink.takes_runs() {
                self.run(&mut records, sink);
            }
            if !self.step(&mut records, sink) {
                break;
            }
        }
    }

    /// The records of a packet, to be taken by steps.
    pub fn begin_packet<'a>(&mut self, packet: &Packet<'a>, sink: &mut dyn Sink) -> Cursor<'a> {
        self.unwrap(packet, sink);
        self.turn(packet.is_of_kernel(), packet.clock_begin(), sink);
        self.pass_stop(packet, packet.clock_begin());
        self.begin_words(
            packet.words(),
            packet.clock_begin(),
            packet.is_behind_loss(),
            sink,
        );
        self.begin_open(packet, 0, packet.clock_begin(), sink);
        Cursor::new(packet.words())
    }

    /// `lossy`: records before these are missing.
    pub(super) fn begin_words(
        &mut self,
        words: &[u64],
        clock: u64,
        lossy: bool,
        sink: &mut dyn Sink,
    ) {
        self.budget.earn(words.len());
        match self.stay {
            _ if !lossy => {}
            Some(stay) => self.lose_stay(stay, sink),
            None => {
                self.open_gap(sink);
                self.known.astray = false;
            }
        }
        self.last_clock = self.last_clock.max(clock);
    }

    /// Takes some records of a packet that has begun.
    pub fn more<S: Sink>(&mut self, words: &[u64], sink: &mut S) {
        self.words(Cursor::new(words), sink);
    }

    /// The number of frames of the program, below those of the kernel.
    pub fn frames_of_program(&self) -> usize {
        self.stay
            .map_or(self.frames.len(), |stay| stay.from.min(self.frames.len()))
    }

    /// Calls that were open before the thread's first record, at `clock`. Their earlier callees are not known: their self
    /// time before is not counted, and is missing if times from `from` on are wanted.
    fn begin_open(&mut self, packet: &Packet, from: u64, clock: u64, sink: &mut dyn Sink) {
        let place = packet.place().filter(|_| !packet.is_of_kernel());
        for aside in place.map_or(&[][..], |place| &place.aside) {
            let left = self.frames.len();
            self.open(&aside.calls, from < clock, aside.since.min(clock), sink);
            let frames = self.frames.split_off(left);
            sink.aside(&frames);
            self.fibers.add(Fiber {
                frames,
                callers: NO_CALLERS,
                since: aside.since.min(clock),
                alive: aside.alive.min(clock),
                counted: false,
            });
            for fiber in self.fibers.surplus() {
                self.give_up(fiber.frames, fiber.alive, fiber.counted, sink);
            }
        }
        if let (Some(stay), Some(place)) = (&mut self.stay, packet.place())
            && place.gaps
        {
            stay.lose();
        }
        let calls = packet.open_calls();
        self.open(calls, from < clock, clock, sink);
        if let Some(last) = calls.last() {
            if self.stay.is_none() {
                self.cursor = last.slot;
            }
            self.event_clock = self.event_clock.max(last.clock);
        }
        if let Some(place) = place {
            if place.slot != 0 {
                self.cursor = place.slot;
            }
            if let Some((slot, elsewhere)) = place.next {
                self.arrival = Some(Arrival { slot, elsewhere });
            }
            self.event_clock = self.event_clock.max(place.clock.min(clock));
            self.known.has_gaps |= place.gaps;
            self.known.astray |= place.astray;
            self.known.jumped = self.known.jumped.max(place.jumped);
            self.known.doubts.extend(&place.doubts);
            self.known.given_up.extend(&place.given_up);
        }
    }

    /// Adds calls of a stack that have begun before, with what was known of them at `clock`. `is_bounded`: part of their
    /// self times is uncertain.
    fn open(&mut self, calls: &[OpenCall], is_bounded: bool, clock: u64, sink: &mut dyn Sink) {
        for (at, call) in calls.iter().enumerate() {
            let until = calls.get(at + 1).map_or(clock, |next| next.clock);
            let style = match call {
                OpenCall { only: true, .. } => Style::Only,
                OpenCall { tail: true, .. } => Style::Tail,
                _ => Style::Wrapped,
            };
            let key = key_of(call.site, call.tag);
            let mut frame = Frame::new(call.clock, call.slot, key, style);
            if call.exact {
                frame = frame.with_slot_known();
            }
            frame.child = until.saturating_sub(frame.clock);
            if is_bounded {
                frame.bound();
            }
            match style {
                Style::Only => self.begin_left_out(frame, call.arguments, sink),
                _ => self.begin(frame, call.arguments, sink),
            }
            if self.frames.len() > DEPTH_LIMIT {
                self.forget_deepest(sink);
            }
        }
    }

    /// Where the thread is on its stack.
    pub fn position(&self) -> Place {
        Place {
            clock: self.event_clock,
            slot: self.cursor,
            gaps: self.known.has_gaps,
            astray: self.known.astray,
            jumped: self.known.jumped,
            doubts: self.known.doubts.clone(),
            given_up: self.known.given_up.iter().copied().collect(),
            next: self.arrival.map(|next| (next.slot, next.elsewhere)),
            aside: Vec::new(),
        }
    }

    /// Whether records of the thread's present work in the kernel are missing. None: it is in its program.
    pub fn misses_kernel_records(&self) -> Option<bool> {
        self.stay.map(|stay| !stay.is_complete())
    }

    /// The stacks that the thread has left and may go back to, in the order in which it has left them.
    pub fn aside(&self) -> Vec<&Fiber> {
        self.fibers.in_order()
    }

    /// Takes one record; false at the end, or if the rest cannot be decoded.
    #[inline(always)]
    pub fn step<S: Sink>(&mut self, records: &mut Cursor, sink: &mut S) -> bool {
        if self.is_stopped {
            self.pass_to_next(records);
        }
        if let Some(stay) = self.stay {
            return self.step_in_kernel(stay, records, sink);
        }
        let Some(word) = records.word() else {
            return false;
        };
        match word.kind() {
            abi::KIND_ENTRY => {
                records.skip(1);
                let clock = self
                    .last_clock
                    .wrapping_add(word.ticks_after(self.last_clock));
                self.tick(clock);
                self.enter(word.key(), Style::Wrapped, clock, None, sink);
            }
            abi::KIND_EXIT => {
                records.skip(1);
                let clock = self
                    .last_clock
                    .wrapping_add(word.ticks_after(self.last_clock));
                self.tick(clock);
                let ending = Ending {
                    clock,
                    result: None,
                    unwound: false,
                };
                self.exit(word.key(), ending, sink);
            }
            abi::KIND_HOLE.. => match self.no_call(records, sink) {
                NoCall::Taken => {}
                NoCall::End => return false,
                NoCall::CallSite => return self.rare(records, sink),
            },
            _ => return self.rare(records, sink),
        }
        true
    }

    /// A call or a return that is told otherwise than by a plain word.
    #[inline(never)]
    fn rare<S: Sink>(&mut self, records: &mut Cursor, sink: &mut S) -> bool {
        let Some(record) = records.take(self.last_clock) else {
            self.open_gap(sink);
            return false;
        };
        let clock = record.clock;
        match record.event {
            Event::Entry {
                site,
                tag,
                style,
                arguments,
            } => {
                self.tick(clock);
                let key = key_of(site, tag);
                self.enter(key, style, clock, arguments.copied(), sink);
            }
            Event::Exit {
                site,
                tag,
                result,
                unwound,
            } => {
                self.tick(clock);
                let ending = Ending {
                    clock,
                    result,
                    unwound,
                };
                self.exit(key_of(site, tag), ending, sink);
            }
            _ => {}
        }
        true
    }

    /// A record that is neither a call nor a return.
    #[inline(never)]
    fn no_call(&mut self, records: &mut Cursor, sink: &mut dyn Sink) -> NoCall {
        let Some(record) = records.take(self.last_clock) else {
            self.open_gap(sink);
            return NoCall::End;
        };
        let clock = record.clock;
        match record.event {
            Event::CallSite {
                site,
                tag,
                return_address,
            } => {
                if let Some(address) = return_address
                    && is_entry(records.rest(), key_of(site, tag))
                {
                    sink.call_site(address);
                    return NoCall::CallSite;
                }
            }
            Event::Hole => {
                self.open_gap(sink);
                self.known.astray = true;
                self.last_clock = clock;
            }
            Event::Resync { slot, reason, .. } => self.resync(clock, slot, reason, sink),
            Event::Marker { event, payload } => self.mark(clock, event, payload, sink),
            Event::ShortCalls { sites } => self.short(clock, sites, sink),
            Event::Entry { .. } | Event::Exit { .. } => {}
        }
        NoCall::Taken
    }

    /// A marker is at the thread's current position; after a jump, frames below that have ended.
    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], sink: &mut dyn Sink) {
        self.last_clock = clock;
        self.close_gap(clock, sink);
        let alive = match self.arrival {
            Some(arrival) if arrival.elsewhere => {
                let left = |frame: &&Frame| frame.slot < arrival.slot;
                self.frames.len() - self.frames.iter().rev().take_while(left).count()
            }
            _ => self.frames.len(),
        };
        sink.mark(clock, event, payload, &self.frames[..alive]);
    }

    pub(super) fn short(&mut self, clock: u64, sites: &[u64], sink: &mut dyn Sink) {
        self.last_clock = clock;
        for (site, calls) in sites.iter().copied().map(abi::short_calls_of) {
            sink.short(clock, site, calls);
        }
    }

    fn resync(&mut self, clock: u64, slot: u64, reason: u32, sink: &mut dyn Sink) {
        self.last_clock = clock;
        self.close_gap(clock, sink);
        if reason == abi::RESYNC_PART {
            return;
        }
        let elsewhere = matches!(reason, abi::RESYNC_STACK | abi::RESYNC_JUMP);
        let before = self.arrival.is_some_and(|arrival| arrival.elsewhere);
        self.find_place(elsewhere, sink);
        if elsewhere {
            self.known.elsewhere(clock);
        }
        if reason == abi::RESYNC_JUMP {
            self.known.jumped = clock;
        }
        self.cursor = slot >> 4;
        self.arrival = Some(Arrival {
            slot: slot >> 4,
            elsewhere: elsewhere || before,
        });
    }

    #[inline(always)]
    pub(super) fn tick(&mut self, clock: u64) {
        self.last_clock = clock;
        self.before = self.event_clock;
        self.event_clock = clock;
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
        let frame = match is_exact {
            true => frame.with_slot_known(),
            false => frame,
        };
        self.begin(frame, arguments, sink);
        if self.frames.len() > DEPTH_LIMIT {
            self.forget_deepest(sink);
        }
    }

    /// Adds a frame on top, and tells the sink of it.
    #[inline(always)]
    pub(super) fn begin<S: Sink + ?Sized>(
        &mut self,
        frame: Frame,
        arguments: Option<[u64; 6]>,
        sink: &mut S,
    ) {
        self.frames.push(frame);
        let note = sink.enter(&self.frames, arguments);
        if let Some(frame) = self.frames.last_mut() {
            frame.note = note;
        }
    }

    /// The same, for a call of which only the entry is known, and which was passed on before.
    fn begin_left_out(&mut self, frame: Frame, arguments: Option<[u64; 6]>, sink: &mut dyn Sink) {
        self.frames.push(frame);
        let note = sink.enter_left_out(&self.frames, arguments);
        if let Some(frame) = self.frames.last_mut() {
            frame.note = note;
        }
    }

    #[cold]
    fn forget_deepest(&mut self, sink: &mut dyn Sink) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        if frame.style() != Style::Only {
            sink.lose(&frame, frame.clock, true);
        }
        self.beyond += u64::from(frame.style() == Style::Wrapped);
    }

    fn bound_tails(&mut self, slot: u64, clock: u64, sink: &mut dyn Sink) {
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
        let is_here = self.arrival.is_none_or(|arrival| !arrival.elsewhere) && self.beyond == 0;
        let tails = match self.frames.last() {
            Some(top) if is_here && top.ends_with(key) => Some(0),
            Some(top) if is_here && top.style() == Style::Tail => self.tails(key),
            _ => None,
        };
        let Some(tails) = tails else {
            return self.exit_elsewhere(key, ending, sink);
        };
        self.arrival = None;
        for _ in 0..=tails {
            self.finish(ending, sink);
        }
    }

    /// The number of tail calls on top, if an exit with `key` ends the call that they are in.
    fn tails(&self, key: u32) -> Option<usize> {
        let is_tail = |frame: &&Frame| frame.style() == Style::Tail && frame.tag() == tag_of(key);
        let tails = self.frames.iter().rev().take_while(is_tail).count();
        let under = self.frames.len().checked_sub(tails + 1)?;
        (!self.known.is_open() && self.frames[under].ends_with(key)).then_some(tails)
    }

    /// Ends the topmost frame.
    #[inline(always)]
    pub(super) fn finish<S: Sink + ?Sized>(&mut self, ending: Ending, sink: &mut S) {
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

    /// The end of the thread's records. Calls that are open were so until `alive`, see [`nopal_trace::ThreadInfo`].
    pub fn end<S: Sink>(&mut self, alive: u64, sink: &mut S) {
        self.event_clock = self.open_until(alive);
        self.lose_all(sink);
    }

    /// When the present calls were certainly open: `alive`, if that is not later than it can be known.
    pub fn open_until(&self, alive: u64) -> u64 {
        let is_open = |frame: &Frame| {
            self.known.alive(frame, BEGIN) == BEGIN && frame.clock >= self.known.jumped
        };
        let is_known = !self.arrival.is_some_and(|arrival| arrival.elsewhere)
            && self.stay.is_none()
            && self.frames.iter().all(is_open);
        match is_known {
            true => self.event_clock.max(alive),
            false => self.event_clock,
        }
    }
}

/// Whether the first of some records is whole, and an entry of this site and tag.
fn is_entry(words: &[u64], key: u32) -> bool {
    let [first, rest @ ..] = words else {
        return false;
    };
    let word = Word(*first);
    let length = word.words(rest);
    length.is_some_and(|length| length <= words.len())
        && word.has_site()
        && !word.is_exit()
        && word.key() == key
}
