//! Bounds on a thread's calls where records may be missing.

use std::collections::BTreeSet;

use nopal_abi::Style;
use serde::{Deserialize, Serialize};

use super::frame::{Frame, Sink};

/// The time since which the thread's records are complete.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Known {
    pub since: u64,
    /// Records are missing before the next one, from this clock on.
    pub gap: Option<u64>,
    /// Ticks since then that do not count as self time of an older call.
    pub spent: u64,
    /// Places of calls that were dropped since then: an exit without a call may belong to one of them.
    pub given_up: BTreeSet<u32>,
    /// For each jump that may have left frames which are still kept: they began after the first clock and were open at
    /// the second.
    pub doubts: Vec<(u64, u64)>,
    /// Frames may be anywhere on their stacks: the records of their places may have been in a hole, or calls that were
    /// not recorded have returned since.
    pub astray: bool,
    pub has_gaps: bool,
    /// The clock of the last jump, which may have left calls that began before.
    pub jumped: u64,
    /// Where the selected time ends, if it has ended, and `spent` there.
    #[serde(skip)]
    pub end: Option<(u64, u64)>,
}

/// Before a thread's first record.
pub(super) const BEGIN: u64 = u64::MAX;

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
            jumped: 0,
            end: None,
        }
    }
}

impl Known {
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.gap.is_some()
    }

    pub fn restart(&mut self, clock: u64) {
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

    /// The clock at which a frame was last known to be alive, at most `clock`.
    pub fn alive(&self, frame: &Frame, clock: u64) -> u64 {
        let at = self.doubts.partition_point(|(_, last)| *last < frame.clock);
        match self.doubts.get(at) {
            Some((after, last)) if *after < frame.clock => clock.min(*last),
            _ => clock,
        }
    }

    /// From `clock` on, any of the old calls may be the one that continues.
    pub fn elsewhere(&mut self, clock: u64) {
        self.spent = clock.saturating_sub(self.since);
        if let Some((end, spent)) = &mut self.end {
            *spent = end.saturating_sub(self.since);
        }
    }
}

/// Drops frames.
pub(super) fn lose(
    mut frames: Vec<Frame>,
    clock: u64,
    counted: bool,
    known: &Known,
    sink: &mut dyn Sink,
) {
    while let Some(frame) = frames.pop() {
        if frame.style() != Style::Only {
            let alive = known.alive(&frame, clock).max(frame.clock);
            sink.lose(&frame, alive, counted);
        }
        if let Some(under) = frames.last_mut() {
            under.child = under.child.saturating_add(frame.ticks_until(clock));
        }
    }
}
