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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub id: CallId,
    /// The calls that it is in, the outermost first.
    pub callers: Vec<CallId>,
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

/// Waits for the last call of a depth that begins in a moment, and for the one that is open at the moment's end.
struct Here {
    moment: Range<u64>,
    depth: usize,
    found: Option<CallId>,
}

impl Pieces for Here {
    fn call(&mut self, depth: usize, site: u32, clock: u64) {
        if depth == self.depth && self.moment.contains(&clock) {
            self.found = Some(CallId { site, begin: clock });
        }
    }

    fn piece(&mut self, depth: usize, open: Open, end: u64) {
        if depth == self.depth && open.begin < self.moment.end && self.moment.end <= end {
            let Open { clock, site, .. } = open;
            self.found = Some(CallId { site, begin: clock });
        }
    }
}

/// The entry of a call.
struct Entered {
    callers: Vec<CallId>,
    arguments: Option<[u64; 6]>,
    /// Its end is recorded, too.
    is_timed: bool,
}

/// Waits for the entry of a call.
struct Entry {
    id: CallId,
    found: Option<Entered>,
}

impl Entry {
    /// Another call of the function, of which only the entry is known, may have the same clock.
    fn is_timed(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.is_timed)
    }
}

impl Sink for Entry {
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        if let Some((frame, under)) = frames.split_last()
            && is(frame, self.id)
            && !self.is_timed()
        {
            let id = |frame: &Frame| CallId {
                site: frame.site(),
                begin: frame.clock,
            };
            self.found = Some(Entered {
                callers: under.iter().map(id).collect(),
                arguments,
                is_timed: frame.style() != nopal_abi::Style::Only,
            });
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
    /// The call of a depth at a moment, which is some ticks long: the last one that begins in it, or else the one that is
    /// open at its end.
    pub fn call_at(&self, thread: &ThreadInfo, moment: Range<u64>, depth: usize) -> Option<CallId> {
        let last = self.block_at(moment.end.checked_sub(1)?)?;
        let first = self.first_block_at(moment.start.max(self.from))?;
        let here = Here {
            moment,
            depth,
            found: None,
        };
        let mut chart = self.read(thread, first..last + 1, here, |_, _, _| true);
        if let Some(open) = chart.open().get(depth).copied() {
            chart.pieces.piece(depth, open, u64::MAX);
        }
        chart.pieces.found
    }

    /// The entry of a call.
    fn entry(&self, thread: &ThreadInfo, id: CallId) -> Option<Entered> {
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
        entry.found
    }

    /// The calls that a call is in, the outermost first; none if there is no such call.
    pub fn callers(&self, thread: &ThreadInfo, id: CallId) -> Option<Vec<CallId>> {
        self.entry(thread, id).map(|entry| entry.callers)
    }

    /// The facts about a call; none if there is no such call.
    pub fn call(&self, thread: &ThreadInfo, id: CallId) -> Option<Call> {
        let Entered {
            callers,
            arguments,
            is_timed,
        } = self.entry(thread, id)?;
        let end = match is_timed {
            true => self.end_of(thread, id, self.first_block_at(id.begin)?),
            false => End::Only,
        };
        Some(Call {
            id,
            callers,
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

    /// The first call of one of some sites that begins at a clock or later.
    pub fn next_call(
        &self,
        thread: &ThreadInfo,
        from: u64,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Option<CallId> {
        let first = self.first_block_at(from.max(self.from))?;
        for packet in thread.packets_in(self.packets_of(first).start..usize::MAX) {
            for record in packet.records() {
                if let Event::Entry { site, .. } = record.event
                    && record.clock >= from
                    && is_wanted(site)
                {
                    let begin = record.clock;
                    return Some(CallId { site, begin });
                }
            }
        }
        None
    }

    /// The last call of one of some sites that begins before a clock.
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
