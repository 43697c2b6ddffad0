//! Makes the index of a thread.

use nopal_analysis::calls::CallRebuilder;
use nopal_trace::ThreadInfo;

use crate::block::Blocks;
use crate::chart::Chart;
use crate::thread_index::{Checkpoint, ThreadIndex};

/// A block ends with the packet that completes this many entries and exits, or words of records.
pub const BLOCK_EVENTS: u64 = 4096;
const BLOCK_WORDS: u64 = 1 << 16;

/// A checkpoint and the lost calls since the one before take at most one of this many bytes of records since then.
const CHECKPOINT_PART: u64 = 128;

/// The bytes that a lost call takes at most, as a rule.
const LOST_BYTES: usize = 20;

/// Packets after which progress is reported and memory is released.
const PAUSE_PACKETS: usize = 16;

/// The state of reading a thread's records.
pub struct Builder {
    rebuilder: CallRebuilder,
    chart: Chart<Blocks>,
    /// Words of the incomplete block; words since the last checkpoint; and how many of these must be read before the
    /// next one is worth its size.
    words: u64,
    unchecked: u64,
    enough: u64,
    block_events: u64,
    /// The lost calls that no later record can change.
    lost: usize,
}

impl Builder {
    /// Begins with a thread.
    pub fn new(thread: &ThreadInfo, block_events: u64) -> (Builder, ThreadIndex) {
        let first = thread.packets().next();
        let from = first.map_or(0, |packet| packet.clock_begin());
        let builder = Builder {
            rebuilder: CallRebuilder::new(),
            chart: Chart::new(&[], from, Blocks::new(from)),
            words: 0,
            unchecked: 0,
            enough: 0,
            block_events,
            lost: 0,
        };
        let index = ThreadIndex {
            process: thread.process,
            thread: thread.thread,
            begin: thread.begin,
            from,
            ..ThreadIndex::default()
        };
        (builder, index)
    }

    /// Adds the packets of the thread that are new, up to a number. The last block may be short.
    pub fn extend(
        &mut self,
        index: &mut ThreadIndex,
        thread: &ThreadInfo,
        until: usize,
        mut progress: impl FnMut(u64),
    ) {
        index.lost.truncate(self.lost);
        let packets: Vec<_> = thread.packets_in(index.packets as usize..until).collect();
        for packets in packets.chunks(PAUSE_PACKETS) {
            let mut read = 0;
            for packet in packets {
                if self.words == 0 {
                    self.begin_block(index, packet.clock_begin());
                }
                self.rebuilder.packet(packet, &mut self.chart);
                index.packets += 1;
                if let Some(since) = self.chart.stray.take()
                    && since < packet.clock_begin()
                {
                    index.add_stray(since);
                }
                let words = packet.words().len() as u64;
                self.words += words;
                read += words;
                if index.packets as usize == thread.packets().len() {
                    self.chart.reach(&self.rebuilder, thread);
                }
                if self.chart.events >= self.block_events || self.words >= BLOCK_WORDS {
                    self.end_block(index);
                }
            }
            progress(read);
            packets.iter().for_each(|packet| packet.release());
        }
        if self.words > 0 {
            self.end_block(index);
        }
        index.lost.append(&mut self.chart.lost);
        self.lost = index.lost.len();
        self.lose_open(index, thread);
    }

    /// The calls that are open are lost unless there are more records.
    fn lose_open(&self, index: &mut ThreadIndex, thread: &ThreadInfo) {
        let mut rebuilder = self.rebuilder.clone();
        let mut chart = Chart::new(&[], 0, Blocks::new(0));
        chart.kept = self.chart.kept;
        rebuilder.end(thread.alive_until, &mut chart);
        index.lost.append(&mut chart.lost);
    }

    /// A block begins with a packet at `clock`.
    fn begin_block(&mut self, index: &mut ThreadIndex, clock: u64) {
        self.rebuilder.forget_old_callers(&mut self.chart.past);
        let block = index.firsts.len() as u32;
        index.firsts.push(index.packets);
        if block == 0 || self.unchecked < self.enough {
            return;
        }
        let lost = self.chart.lost.len() * LOST_BYTES;
        // A state that cannot be written is left out.
        let Ok(state) = self.rebuilder.checkpoint(&mut self.chart.past) else {
            return;
        };
        self.enough = (state.len() + lost) as u64 * CHECKPOINT_PART / 8;
        if self.unchecked >= self.enough {
            self.unchecked = 0;
            index.lost.append(&mut self.chart.lost);
            self.chart.kept = clock;
            let state = state.into();
            index.checkpoints.push(Checkpoint { block, state });
        }
    }

    fn end_block(&mut self, index: &mut ThreadIndex) {
        let end = self.chart.now();
        let open = self.chart.open().to_vec();
        self.chart.pieces.close(end, &open, &mut index.levels);
        index.calls = self.chart.pieces.calls;
        self.unchecked += self.words;
        index.words += self.words;
        index.missing.append(&mut self.chart.pieces.missing);
        self.words = 0;
        self.chart.events = 0;
    }
}
