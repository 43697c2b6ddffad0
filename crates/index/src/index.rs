//! The index of a trace, thread by thread.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nopal_analysis::calls::CallRebuilder;
use nopal_analysis::drive::Progress;
use nopal_beside::Mutex;
use nopal_trace::{ThreadInfo, ThreadKey, Trace};
use serde::{Deserialize, Serialize};

use crate::builder::{BLOCK_EVENTS, Builder};
use crate::cell::Level;
use crate::store;

/// The calls of a thread, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadIndex {
    pub process: u32,
    pub thread: u32,
    pub begin: u64,
    /// Counter where its first block begins.
    pub from: u64,
    /// Its packets that are in blocks.
    pub(crate) packets: u32,
    /// Words of records, and calls, in its blocks.
    pub words: u64,
    pub calls: u64,
    /// The first packet of each block.
    pub(crate) firsts: Vec<u32>,
    /// Blocks, and what sums them up. A level has no node for the last nodes of the one below, if they are too few.
    pub levels: Vec<Level>,
    pub(crate) checkpoints: Vec<Checkpoint>,
    /// Times in which records are missing.
    pub missing: Vec<(u64, u64)>,
}

/// The state of a thread at the begin of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub block: u32,
    pub state: Vec<u8>,
}

impl ThreadIndex {
    pub fn key(&self) -> ThreadKey {
        ThreadKey {
            process: self.process,
            thread: self.thread,
            begin: self.begin,
        }
    }

    /// The number of depths that have calls.
    pub fn depths(&self) -> usize {
        let most = |level: &Level| (0..level.len()).map(|node| level.cells(node).len()).max();
        self.levels.iter().filter_map(most).max().unwrap_or(0)
    }

    pub(crate) fn blocks(&self) -> usize {
        self.firsts.len()
    }

    /// Counter where its last block ends.
    pub fn until(&self) -> u64 {
        let blocks = self.levels.first();
        blocks
            .and_then(|level| level.ends.last().copied())
            .unwrap_or(self.from)
    }

    /// The packets of a block.
    pub(crate) fn packets_of(&self, block: usize) -> Range<usize> {
        let end = self.firsts.get(block + 1).unwrap_or(&self.packets);
        self.firsts[block] as usize..*end as usize
    }

    /// The block in whose time a moment is, if it is in one.
    pub(crate) fn block_at(&self, clock: u64) -> Option<usize> {
        let level = self.levels.first()?;
        let block = level.ends.partition_point(|end| *end <= clock);
        let is_last = || level.ends.last() == Some(&clock);
        (clock >= self.from && (block < level.len() || is_last()))
            .then(|| block.min(level.len() - 1))
    }

    /// The last checkpoint that is not behind a block: the block that it is at, and the state.
    pub(crate) fn before(&self, block: usize) -> (usize, CallRebuilder) {
        let after = self
            .checkpoints
            .partition_point(|checkpoint| checkpoint.block as usize <= block);
        let usable = self.checkpoints[..after]
            .iter()
            .rev()
            .find_map(|checkpoint| {
                let state = CallRebuilder::resume(&checkpoint.state).ok()?;
                Some((checkpoint.block as usize, state))
            });
        usable.unwrap_or_default()
    }

    /// The block of the last checkpoint that is not behind a block.
    pub(crate) fn checkpoint_before(&self, block: usize) -> usize {
        let after = self
            .checkpoints
            .partition_point(|checkpoint| checkpoint.block as usize <= block);
        self.checkpoints[..after]
            .last()
            .map_or(0, |last| last.block as usize)
    }

    /// Whether the parts fit together and are of this thread, for an index that was read from a file.
    pub(crate) fn is_sound(&self, thread: &ThreadInfo) -> bool {
        let blocks = self.firsts.len();
        let rises = |numbers: &[u32]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
        let numbers: Vec<u32> = self.checkpoints.iter().map(|one| one.block).collect();
        let ends = self.levels.first().map_or(0, |level| level.ends.len());
        let packets = thread.packets();
        rises(&self.firsts)
            && rises(&numbers)
            && numbers.last().is_none_or(|last| (*last as usize) < blocks)
            && self.firsts.last().is_none_or(|last| *last < self.packets)
            && ends == blocks
            && self.levels.iter().all(|level| level.is_sound(self.from))
            && self.packets as usize == packets.len()
            && self.key() == key(thread)
    }
}

/// The index of a trace. Its threads are those of the trace, in their order.
pub struct Index {
    pub threads: Vec<ThreadIndex>,
    /// Where the reading of each of them stands, if the trace may still grow.
    builders: Vec<Builder>,
    block_events: u64,
}

impl Index {
    /// The index that is kept beside a trace, or a new one, which is then kept unless the trace may still grow.
    pub fn open(trace: &Trace, workers: usize, progress: Option<Progress>) -> Index {
        if let Ok(threads) = store::read(trace) {
            return Index {
                threads,
                ..Index::of_blocks(BLOCK_EVENTS)
            };
        }
        let mut index = Index::make(trace, workers, progress);
        if !trace.is_growing() {
            index.builders = Vec::new();
            // If it cannot be written, the next reader makes it again.
            let _ = store::write(trace, &index.threads);
        }
        index
    }

    /// Makes the index of a trace.
    pub fn make(trace: &Trace, workers: usize, progress: Option<Progress>) -> Index {
        let mut index = Index::of_blocks(BLOCK_EVENTS);
        index.extend(trace, workers, progress);
        index
    }

    /// An index of nothing, whose blocks end with the packet that completes this many events.
    pub(crate) fn of_blocks(block_events: u64) -> Index {
        Index {
            threads: Vec::new(),
            builders: Vec::new(),
            block_events,
        }
    }

    /// Adds what was recorded since to an index that was made.
    pub fn extend(&mut self, trace: &Trace, workers: usize, progress: Option<Progress>) {
        let infos = trace.threads();
        let known = std::mem::take(&mut self.builders).into_iter();
        let known = known.zip(std::mem::take(&mut self.threads));
        let mut known: HashMap<ThreadKey, _> = known.map(|one| (one.1.key(), one)).collect();
        let mut work = Vec::new();
        for (at, thread) in infos.iter().enumerate() {
            let one = known.remove(&key(thread));
            // Of a thread without records, it is not known when it begins.
            let one = one.filter(|(_, index)| index.packets > 0);
            work.push((
                at,
                thread,
                one.unwrap_or_else(|| Builder::new(thread, self.block_events)),
            ));
        }
        let words = |thread: &ThreadInfo| -> u64 {
            let packets = thread.packets();
            packets.map(|packet| packet.words().len() as u64).sum()
        };
        let all: u64 = infos.iter().map(words).sum();
        let done = AtomicU64::new(0);
        work.sort_by_cached_key(|(_, thread, _)| words(thread));
        let (work, made) = (Mutex::new(work), Mutex::new(Vec::new()));
        let run = || {
            while let Some((at, thread, (mut builder, mut index))) = { work.lock().pop() } {
                builder.extend(&mut index, thread, usize::MAX, |words| {
                    let done = done.fetch_add(words, Ordering::Relaxed) + words;
                    if let Some(progress) = progress {
                        progress(done, all);
                    }
                });
                made.lock().push((at, builder, index));
            }
        };
        thread::scope(|scope| {
            for _ in 1..workers.max(1) {
                nopal_beside::try_spawn(scope, run);
            }
            run();
        });
        let mut made = std::mem::take(&mut *made.lock());
        made.sort_by_key(|(at, ..)| *at);
        for (_, builder, index) in made {
            self.builders.push(builder);
            self.threads.push(index);
        }
    }

    /// Adds the packets of a thread up to a number.
    #[cfg(test)]
    pub(crate) fn extend_thread(&mut self, at: usize, thread: &ThreadInfo, until: usize) {
        if at == self.threads.len() {
            let (builder, index) = Builder::new(thread, self.block_events);
            self.builders.push(builder);
            self.threads.push(index);
        }
        self.builders[at].extend(&mut self.threads[at], thread, until, |_| ());
    }

    /// Where the index of a trace is kept.
    pub fn path(trace: &Trace) -> PathBuf {
        store::path(trace)
    }
}

fn key(thread: &ThreadInfo) -> ThreadKey {
    ThreadKey {
        process: thread.process,
        thread: thread.thread,
        begin: thread.begin,
    }
}
