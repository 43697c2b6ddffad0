//! Gaps in a thread's records, and the calls that were open at them.
//!
//! After a gap no open call can be identified: in a recursion, an exit may belong to another call. So calls that are
//! open when a gap begins are lost there, and an exit behind it that ends no call begun behind it is stray: its call
//! began earlier, and has lasted at least since the gap's end.

use std::collections::BTreeSet;

use nopal_abi::Style;
use serde::{Deserialize, Serialize};

use super::frame::{Ending, Frame, Sink};
use super::rebuilder::CallRebuilder;
use super::stacks::lose;

/// Calls of more places than these are not told apart.
const GIVEN_UP_LIMIT: usize = 1 << 16;

/// Since when the thread's records are complete.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Known {
    since: u64,
    /// Records are missing before the next one, from this clock on.
    gap: Option<u64>,
    /// Ticks since then that do not count as self time of an older call.
    spent: u64,
    /// Places of calls that were dropped since then: an exit without a call may belong to one of them.
    given_up: BTreeSet<u32>,
    /// For each jump that may have left frames which are still kept: they began after the first clock and were open at
    /// the second.
    doubts: Vec<(u64, u64)>,
    /// Frames may be anywhere on their stacks: what told where they are may have been in a hole, or calls that were not
    /// recorded have returned since.
    pub astray: bool,
    has_gaps: bool,
}

/// Before a thread's first record.
const BEGIN: u64 = u64::MAX;

impl Default for Known {
    fn default() -> Known {
        Known {
            since: 0,
            gap: Some(BEGIN),
            spent: 0,
            given_up: BTreeSet::new(),
            doubts: Vec::new(),
            astray: false,
            has_gaps: false,
        }
    }
}

impl Known {
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.gap.is_some()
    }

    fn restart(&mut self, clock: u64) {
        self.since = clock;
        self.spent = 0;
        self.given_up.clear();
    }

    /// Adds ticks spent in newer calls.
    #[inline(always)]
    pub fn spend(&mut self, ticks: u64) {
        self.spent = self.spent.saturating_add(ticks);
    }

    #[inline(always)]
    pub fn has_gaps(&self) -> bool {
        self.has_gaps
    }

    /// A call was placed only by the position of the last event. After a gap, unrecorded calls may have returned, so it
    /// may be elsewhere.
    pub fn estimate(&mut self) {
        self.astray |= self.has_gaps;
    }

    /// When a frame was last known to be alive, if no later than `clock`.
    pub fn alive(&self, frame: &Frame, clock: u64) -> u64 {
        let at = self.doubts.partition_point(|(_, last)| *last < frame.clock);
        match self.doubts.get(at) {
            Some((after, last)) if *after < frame.clock => clock.min(*last),
            _ => clock,
        }
    }

    /// From `clock` on it is not known which of the old calls continue.
    pub fn elsewhere(&mut self, clock: u64) {
        self.spent = clock.saturating_sub(self.since);
    }
}

impl CallRebuilder {
    /// Records are missing from here on to the next one.
    #[cold]
    pub(super) fn open_gap<S: Sink>(&mut self, sink: &mut S) {
        self.lose_all(sink);
        self.arrival = None;
        self.beyond = 0;
        self.known.gap.get_or_insert(self.last_clock);
    }

    /// The next record is there.
    #[cold]
    pub(super) fn close_gap<S: Sink>(&mut self, clock: u64, sink: &mut S) {
        let Some(since) = self.known.gap.take() else {
            return;
        };
        self.known.restart(clock);
        if since != BEGIN {
            self.known.has_gaps = true;
            sink.missing(clock, clock.saturating_sub(since));
        }
    }

    /// Calls that are open were alive at the last event.
    pub(super) fn lose_all<S: Sink>(&mut self, sink: &mut S) {
        let clock = self.event_clock;
        lose(self.frames.split_off(0), clock, true, &self.known, sink);
        for fiber in self.fibers.drain() {
            lose(fiber.frames, fiber.alive, fiber.counted, &self.known, sink);
        }
        self.known.doubts.clear();
    }

    /// A RESYNC gives a slot, after a jump if `elsewhere`.
    pub(super) fn find_place<S: Sink>(&mut self, elsewhere: bool, sink: &mut S) {
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

    /// A jump has left some frames alive by their slots. Where these are estimated, which may be too high, it may have
    /// left them, too.
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
    pub(super) fn give_up<S: Sink>(
        &mut self,
        frames: Vec<Frame>,
        clock: u64,
        counted: bool,
        sink: &mut S,
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

    /// The exit of a call whose entry is not known. Where all calls that have begun since have ended, or are on other
    /// stacks, it has lasted since all records are there.
    pub(super) fn stray<S: Sink>(&mut self, key: u32, ending: Ending, sink: &mut S) {
        let is_older = self.frames.is_empty() && !self.known.given_up.contains(&key);
        let mut frame = Frame::new(ending.clock, self.cursor, key, Style::Wrapped);
        if is_older {
            frame.clock = self.known.since.min(ending.clock);
            frame.child = self.known.spent.min(ending.clock - frame.clock);
        }
        self.known.elsewhere(ending.clock);
        sink.stray(&frame, ending);
    }
}
