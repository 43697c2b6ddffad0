//! Finds the call at a point of a thread, and other calls of a function.

use std::collections::HashMap;
use std::ops::Range;

use nopal_abi::Event;
use nopal_analysis::calls::{CallRebuilder, Ending, Frame, Sink};
use nopal_analysis::sort;
use nopal_trace::{Packet, ThreadInfo};

use crate::chart::{Open, Pieces};
use crate::thread_index::ThreadIndex;

/// A call, by its site and the counter at its entry. Calls of a function that begin at once are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    pub site: u32,
    pub begin: u64,
}

/// The facts about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub id: CallId,
    pub depth: usize,
    pub arguments: Option<[u64; 6]>,
    pub end: End,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It returned, or was unwound; `own` are the ticks in it alone.
    Left {
        clock: u64,
        own: u64,
        result: Option<u64>,
        unwound: bool,
    },
    /// Its end is not known; it was open at this clock.
    Lost(u64),
    /// Only its entry was recorded.
    Only,
}

/// Collects the pieces that contain a moment, by depth.
struct Covering {
    at: u64,
    found: Vec<Option<Open>>,
}

impl Covering {
    fn take(&mut self, depth: usize, open: Open, end: u64) {
        if open.begin <= self.at && self.at < end {
            if self.found.len() <= depth {
                self.found.resize(depth + 1, None);
            }
            self.found[depth] = Some(open);
        }
    }
}

impl Pieces for Covering {
    fn call(&mut self, _depth: usize, _site: u32, _clock: u64) {}

    fn piece(&mut self, depth: usize, open: Open, end: u64) {
        self.take(depth, open, end);
    }
}

/// Waits for the entry of a call.
struct Entry {
    id: CallId,
    found: Option<(usize, Option<[u64; 6]>, bool)>,
}

impl Entry {
    /// Another call of the function, of which only the entry is known, may have the same clock.
    fn is_timed(&self) -> bool {
        self.found.is_some_and(|(_, _, is_timed)| is_timed)
    }
}

impl Sink for Entry {
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        if let Some((frame, under)) = frames.split_last()
            && is(frame, self.id)
            && !self.is_timed()
        {
            let is_timed = frame.style() != nopal_abi::Style::Only;
            self.found = Some((under.len(), arguments, is_timed));
        }
        0
    }
    fn leave(&mut self, _: &Frame, _: Ending, _: &[Frame]) {}
    fn lose(&mut self, _: &Frame, _: u64, _: bool) {}
    fn stray(&mut self, _: &Frame, _: Ending) {}
}

/// Waits for the end of a call.
struct Exit {
    id: CallId,
    found: Option<End>,
}

impl Sink for Exit {
    fn enter(&mut self, _: &[Frame], _: Option<[u64; 6]>) -> u32 {
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _: &[Frame]) {
        if is(frame, self.id) && self.found.is_none() {
            let ticks = ending.clock.saturating_sub(frame.clock);
            self.found = Some(End::Left {
                clock: ending.clock,
                own: ticks.saturating_sub(frame.child),
                result: ending.result,
                unwound: ending.unwound,
            });
        }
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _: bool) {
        if is(frame, self.id) && self.found.is_none() {
            self.found = Some(End::Lost(clock));
        }
    }

    fn stray(&mut self, _: &Frame, _: Ending) {}
}

fn is(frame: &Frame, id: CallId) -> bool {
    frame.clock == id.begin && frame.site() == id.site
}

impl ThreadIndex {
    /// The calls that are open at a moment, the outermost first. Depths whose calls have no length are left out.
    pub fn stack_at(&self, thread: &ThreadInfo, clock: u64) -> Vec<(usize, CallId)> {
        let Some(block) = self.block_at(clock) else {
            return Vec::new();
        };
        let covering = Covering {
            at: clock,
            found: Vec::new(),
        };
        let mut chart = self.read(thread, block..block + 1, covering, |_, _, _| true);
        let open = chart.open().to_vec();
        for (depth, open) in open.into_iter().enumerate() {
            chart.pieces.take(depth, open, u64::MAX);
        }
        let found = chart.pieces.found.into_iter().enumerate();
        let calls = found.filter_map(|(depth, open)| {
            let Open { clock, site, .. } = open?;
            Some((depth, CallId { site, begin: clock }))
        });
        calls.collect()
    }

    /// The facts about a call; none if there is no such call.
    pub fn call(&self, thread: &ThreadInfo, id: CallId) -> Option<Call> {
        let block = self.first_block_at(id.begin)?;
        let mut entry = Entry { id, found: None };
        let (first, (mut rebuilder, _)) = self.before(block);
        // Other events may have the same clock, in more than one block.
        for packet in thread.packets_in(self.packets_of(first).start..usize::MAX) {
            if packet.clock_begin() > id.begin || entry.is_timed() {
                break;
            }
            rebuilder.packet(&packet, &mut entry);
        }
        let (depth, arguments, is_timed) = entry.found?;
        let end = match is_timed {
            true => self.end_of(thread, id, block),
            false => End::Only,
        };
        Some(Call {
            id,
            depth,
            arguments,
            end,
        })
    }

    fn first_block_at(&self, clock: u64) -> Option<usize> {
        let level = self.levels.first()?;
        let block = level.ends.partition_point(|end| *end < clock);
        (clock >= self.from && block < level.len()).then_some(block)
    }

    /// The end of a call that began in a block. If it is still open at a later checkpoint, reading begins there.
    fn end_of(&self, thread: &ThreadInfo, id: CallId, block: usize) -> End {
        let is_open =
            |rebuilder: &CallRebuilder| rebuilder.frames().iter().any(|frame| is(frame, id));
        let later = self
            .checkpoints
            .partition_point(|checkpoint| checkpoint.block as usize <= block);
        let still = self.checkpoints[later..].partition_point(|checkpoint| {
            CallRebuilder::resume(&checkpoint.state).is_ok_and(|(state, _)| is_open(&state))
        });
        let start = match still {
            0 => block,
            some => self.checkpoints[later + some - 1].block as usize,
        };
        let (first, (mut rebuilder, _)) = self.before(start);
        let mut exit = Exit { id, found: None };
        for packet in thread.packets_in(self.packets_of(first).start..usize::MAX) {
            rebuilder.packet(&packet, &mut exit);
            if let Some(end) = exit.found {
                return end;
            }
        }
        rebuilder.end(thread.alive_until, &mut exit);
        exit.found.unwrap_or(End::Lost(rebuilder.clock()))
    }

    /// The first call of one of some sites that begins after a moment.
    pub fn next_call(
        &self,
        thread: &ThreadInfo,
        after: u64,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Option<CallId> {
        let first = self.first_block_at(after.max(self.from))?;
        for packet in thread.packets_in(self.packets_of(first).start..usize::MAX) {
            for record in packet.records() {
                if let Event::Entry { site, .. } = record.event
                    && record.clock > after
                    && is_wanted(site)
                {
                    let begin = record.clock;
                    return Some(CallId { site, begin });
                }
            }
        }
        None
    }

    /// The last call of one of some sites that begins before a moment.
    pub fn previous_call(
        &self,
        thread: &ThreadInfo,
        before: u64,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Option<CallId> {
        for packet in thread.packets().rev() {
            if packet.clock_begin() >= before {
                continue;
            }
            let entries = packet.records().filter_map(|record| match record.event {
                Event::Entry { site, .. } if record.clock < before && is_wanted(site) => {
                    let begin = record.clock;
                    Some(CallId { site, begin })
                }
                _ => None,
            });
            if let Some(last) = entries.last() {
                return Some(last);
            }
        }
        None
    }

    /// How many calls of some sites begin in each block.
    pub fn calls_by_block(&self, thread: &ThreadInfo, is_wanted: impl Fn(u32) -> bool) -> Vec<u64> {
        let count = |block: usize| {
            let packets = thread.packets_in(self.packets_of(block));
            let records = packets.flat_map(|packet| packet.records());
            let wanted = |event| matches!(event, Event::Entry { site, .. } if is_wanted(site));
            records.filter(|record| wanted(record.event)).count() as u64
        };
        (0..self.blocks()).map(count).collect()
    }
}

/// Calls of a function, with the ticks in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub site: u32,
    pub calls: u64,
    pub ticks: u64,
}

/// Sums up the pieces at one depth within a time.
struct Summing {
    depth: usize,
    time: Range<u64>,
    sums: HashMap<u32, Sum>,
}

impl Summing {
    fn sum(&mut self, site: u32) -> &mut Sum {
        let new = Sum {
            site,
            ..Sum::default()
        };
        self.sums.entry(site).or_insert(new)
    }
}

impl Pieces for Summing {
    fn call(&mut self, depth: usize, site: u32, clock: u64) {
        if depth == self.depth && self.time.contains(&clock) {
            self.sum(site).calls += 1;
        }
    }

    fn piece(&mut self, depth: usize, open: Open, end: u64) {
        let ticks = end
            .min(self.time.end)
            .saturating_sub(open.begin.max(self.time.start));
        if depth == self.depth && ticks > 0 {
            self.sum(open.site).ticks += ticks;
        }
    }
}

impl ThreadIndex {
    /// The calls at a depth within a time, by site, those with most ticks first. None if more than `budget` words of
    /// records would be read for it.
    pub fn sums(
        &self,
        thread: &ThreadInfo,
        time: Range<u64>,
        depth: usize,
        budget: u64,
    ) -> Option<Vec<Sum>> {
        let first = self.first_block_at(time.start.max(self.from))?;
        let last = self.levels[0].ends.partition_point(|end| *end < time.end);
        let blocks = first..(last + 1).min(self.blocks());
        let words = self.words / self.blocks() as u64 + 1;
        let start = self.checkpoint_before(first);
        if (blocks.end - start) as u64 * words > budget {
            return None;
        }
        let sums = HashMap::new();
        let summing = Summing { depth, time, sums };
        let mut chart = self.read(thread, blocks, summing, |_, _, _| true);
        chart.finish();
        let mut sums: Vec<Sum> = chart.pieces.sums.into_values().collect();
        sort::by_key(&mut sums, |sum| (std::cmp::Reverse(sum.ticks), sum.site));
        Some(sums)
    }

    /// The numbers of the blocks that a time touches, and the time of a block.
    pub fn blocks_in(&self, time: &Range<u64>) -> Range<usize> {
        let Some(level) = self.levels.first() else {
            return 0..0;
        };
        let first = level.ends.partition_point(|end| *end < time.start);
        let last = level.ends.partition_point(|end| *end < time.end);
        first..(last + 1).min(level.len())
    }

    pub fn time_of(&self, block: usize) -> Range<u64> {
        self.levels[0].time(block, self.from)
    }

    /// Markers in a block.
    pub fn markers_in(&self, block: usize) -> u64 {
        self.levels[0].markers[block]
    }

    /// The packets of a block.
    pub fn packets_in<'a>(
        &self,
        thread: &ThreadInfo<'a>,
        block: usize,
    ) -> impl Iterator<Item = Packet<'a>> + use<'a> {
        thread.packets_in(self.packets_of(block))
    }
}
