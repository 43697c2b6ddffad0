//! Gaps in a thread's records, and the calls that were open at them.
//!
//! After a gap no open call can be identified: in a recursion, an exit may belong to another call. So calls that are
//! open when a gap begins are lost there, and an exit behind it that ends no call begun behind it is stray: its call
//! began earlier, and has lasted at least since the gap's end.

use nopal_abi::{Cursor, Style};
use nopal_trace::Packet;

use super::frame::{Ending, Frame, Sink};
use super::known::{BEGIN, lose};
use super::rebuilder::CallRebuilder;
use super::stay::Stay;

/// At most this many places of calls are distinguished.
const GIVEN_UP_LIMIT: usize = 1 << 16;

impl CallRebuilder {
    /// Records are missing from here on to the next one.
    #[cold]
    pub(super) fn open_gap(&mut self, sink: &mut dyn Sink) {
        self.lose_all(sink);
        self.arrival = None;
        self.beyond = 0;
        self.known.gap.get_or_insert(self.last_clock);
    }

    /// Loses the open calls where a packet is the first after they were unwrapped. No records are missing.
    pub(super) fn unwrap(&mut self, packet: &Packet, sink: &mut dyn Sink) {
        if !packet.is_behind_unwrapping() {
            return;
        }
        self.lose_all(sink);
        self.arrival = None;
        self.beyond = 0;
        if let Some(stay) = &mut self.stay {
            *stay = Stay::unknown();
        }
    }

    /// The packet begins at `clock`, by the clocks that its records are taken with.
    pub(super) fn pass_stop(&mut self, packet: &Packet, clock: u64) {
        let since = clock.saturating_sub(self.last_clock);
        self.pass(packet.stopped_before().min(since));
        self.is_stopped = packet.is_stopped();
    }

    #[cold]
    pub(super) fn pass_to_next(&mut self, records: &Cursor) {
        let next = records.clone().take(self.last_clock);
        let clock = next.map_or(self.last_clock, |record| record.clock);
        self.pass(clock.saturating_sub(self.last_clock));
    }

    /// While recording was stopped, the calls' own times are not known.
    pub(super) fn pass(&mut self, ticks: u64) {
        if ticks == 0 {
            return;
        }
        match self.frames.last_mut() {
            Some(top) => {
                top.child = top.child.saturating_add(ticks);
                top.bound();
            }
            None => self.known.spend(ticks),
        }
    }

    /// Ends the gap: the next record is here.
    #[cold]
    pub(super) fn close_gap(&mut self, clock: u64, sink: &mut dyn Sink) {
        let Some(since) = self.known.gap.take() else {
            return;
        };
        let given_up = std::mem::take(&mut self.known.given_up);
        self.known.restart(clock);
        if since == BEGIN {
            // Those before a part of a trace.
            self.known.given_up = given_up;
        } else {
            self.known.has_gaps = true;
            sink.missing(clock, clock.saturating_sub(since));
        }
    }

    /// Open calls were alive at the last event.
    pub(super) fn lose_all(&mut self, sink: &mut dyn Sink) {
        let clock = self.event_clock;
        lose(self.frames.split_off(0), clock, true, &self.known, sink);
        for fiber in self.fibers.drain() {
            lose(fiber.frames, fiber.alive, fiber.counted, &self.known, sink);
        }
        self.known.doubts.clear();
    }

    /// A RESYNC gives a slot, after a jump if `elsewhere`.
    pub(super) fn find_place(&mut self, elsewhere: bool, sink: &mut dyn Sink) {
        if !self.known.astray {
            return;
        }
        if elsewhere {
            let frames = self.frames.split_off(0);
            self.give_up(frames, self.event_clock, true, sink);
            for fiber in self.fibers.drain().collect::<Vec<_>>() {
                self.give_up(fiber.frames, fiber.alive, fiber.counted, sink);
            }
        }
        self.known.astray = !self.frames.is_empty();
    }

    /// After a jump, some frames are alive by their slots. Estimated slots may be too high, so the jump may have left
    /// these frames, too.
    pub(super) fn doubt(&mut self) {
        let certain = self.budget.search(&self.frames, Frame::is_exact);
        let certain = certain.map_or(0, |at| self.frames[at].clock);
        let Some(top) = self.frames.last() else {
            return;
        };
        let doubts = &mut self.known.doubts;
        let is_over = |(after, last): &mut (u64, u64)| {
            let until = self.frames.partition_point(|frame| frame.clock <= *last);
            self.frames[..until]
                .last()
                .is_none_or(|frame| frame.clock <= *after)
        };
        while doubts.pop_if(is_over).is_some() {}
        let after = doubts
            .last()
            .map_or(certain, |(_, last)| certain.max(*last));
        if after < top.clock {
            doubts.push((after, self.before));
        }
    }

    /// Drops frames that may still be open.
    pub(super) fn give_up(
        &mut self,
        frames: Vec<Frame>,
        clock: u64,
        counted: bool,
        sink: &mut dyn Sink,
    ) {
        let wrapped = frames
            .iter()
            .filter(|frame| frame.style() == Style::Wrapped);
        self.known.given_up.extend(wrapped.map(Frame::key));
        if self.known.given_up.len() > GIVEN_UP_LIMIT {
            self.known.restart(self.last_clock);
        }
        lose(frames, clock, counted, &self.known, sink);
    }

    /// The exit of a call whose entry is not known. If all calls that have begun since have ended, or are on other
    /// stacks, it has lasted at least since the records are complete.
    pub(super) fn stray(&mut self, key: u32, ending: Ending, sink: &mut dyn Sink) {
        let is_older = self.frames.is_empty() && !self.known.given_up.contains(&key);
        let mut frame = Frame::new(ending.clock, self.cursor, key, Style::Wrapped);
        if is_older {
            frame.clock = self.known.since.min(ending.clock);
            let (end, spent) = self.known.end.unwrap_or((ending.clock, self.known.spent));
            frame.child = spent.min(end.saturating_sub(frame.clock));
        }
        self.known.elsewhere(ending.clock);
        sink.stray(&frame, ending);
    }
}
