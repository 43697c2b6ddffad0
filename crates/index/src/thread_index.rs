use std::ops::Range;

use nopal_analysis::calls::{CallRebuilder, Past};
use nopal_analysis::range::{LostCall, ThreadCheckpoints};
use nopal_trace::{ThreadInfo, ThreadKey};
use serde::{Deserialize, Serialize};

use crate::cell::{FAN_OUT, Level};
use crate::lost;
use crate::part::{Part, Parts};

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
    /// Blocks, and the levels that sum them up. A level has no node for the last nodes of the one below if these are
    /// too few.
    pub levels: Vec<Level>,
    pub(crate) checkpoints: Vec<Checkpoint>,
    /// Times in which records are missing.
    pub missing: Vec<(u64, u64)>,
    /// As in [`ThreadCheckpoints`].
    pub(crate) strays: Vec<(u64, u32)>,
    /// As in [`ThreadCheckpoints`], in any order.
    #[serde(with = "lost")]
    pub(crate) lost: Vec<LostCall>,
}

/// The state of a thread at the begin of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub block: u32,
    #[serde(skip)]
    pub state: Part,
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
        let most = |level: &Level| (0..level.len()).map(|node| level.depths(node)).max();
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

    /// The block whose time contains a moment, if any.
    pub(crate) fn block_at(&self, clock: u64) -> Option<usize> {
        let level = self.levels.first()?;
        let block = level.ends.partition_point(|end| *end <= clock);
        let is_last = || level.ends.last() == Some(&clock);
        (clock >= self.from && (block < level.len() || is_last()))
            .then(|| block.min(level.len() - 1))
    }

    /// The last checkpoint that is not behind a block: its block and its state.
    pub(crate) fn before(&self, block: usize) -> (usize, (CallRebuilder, Past)) {
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

    /// The packet that was read last has the exit of a call that was open since a counter.
    pub(crate) fn add_stray(&mut self, since: u64) {
        match self.strays.last_mut() {
            Some(last) if last.0 == since => last.1 = self.packets,
            _ => self.strays.push((since, self.packets)),
        }
    }

    /// The checkpoints for a reader of a part of the thread.
    pub(crate) fn range_checkpoints(&self) -> ThreadCheckpoints {
        let packet = |block: u32| self.firsts[block as usize] as usize;
        let states = self.checkpoints.iter();
        let states = states.map(|one| (packet(one.block), one.state.to_vec()));
        let strays = self.strays.iter();
        let mut lost = self.lost.clone();
        lost.sort_unstable();
        ThreadCheckpoints {
            lost,
            states: states.collect(),
            strays: strays
                .map(|(since, packet)| (*since, *packet as usize))
                .collect(),
        }
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

    /// Passes on what the file has of it beside its fields.
    pub(crate) fn write_parts(&self, mut part: impl FnMut(&[u8])) -> postcard::Result<()> {
        for level in &self.levels {
            level.write_parts(&mut part)?;
        }
        self.checkpoints.iter().for_each(|one| part(&one.state));
        Ok(())
    }

    /// Takes the parts that were written, to read them later.
    pub(crate) fn take_parts(&mut self, parts: &mut Parts) -> Option<()> {
        let mut levels = self.levels.iter_mut();
        levels.try_for_each(|level| level.take_parts(parts))?;
        for one in &mut self.checkpoints {
            one.state = parts.take()?;
        }
        Some(())
    }

    /// Whether the parts fit together and are of this thread, for an index that was read from a file.
    pub(crate) fn is_sound(&self, thread: &ThreadInfo) -> bool {
        let blocks = self.firsts.len();
        let rises = |numbers: &[u32]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
        let numbers: Vec<u32> = self.checkpoints.iter().map(|one| one.block).collect();
        let ends = self.levels.first().map_or(0, |level| level.ends.len());
        let packets = thread.packets();
        // Each node has all nodes that it sums up.
        let sums_up = |pair: &[Level]| pair[1].len() <= pair[0].len() / FAN_OUT;
        rises(&self.firsts)
            && rises(&numbers)
            && numbers.last().is_none_or(|last| (*last as usize) < blocks)
            && self.firsts.last().is_none_or(|last| *last < self.packets)
            && ends == blocks
            && self.levels.iter().all(|level| level.is_sound(self.from))
            && self.levels.windows(2).all(sums_up)
            && self.packets as usize == packets.len()
            && self.key() == thread.key()
    }
}
