//! Gives the trace's subscribers its records: of chunks that threads still fill within a round of collecting, of others
//! before they are written or given up. Costs nothing while there are no subscribers.

use crate::collecting::chunk_reader::{Begin, ChunkReader, Copied, name_of};
use crate::collecting::heartbeat::Heartbeat;
use crate::memory::region::Region;
use anyhow::Result;
use nopal_abi::{CHUNK_FREE, CHUNK_OWNED};
use nopal_process::thread_alive;
use nopal_trace::{ChunkPhase, ThreadKey, Writer};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub struct Subscription {
    reader: ChunkReader,
    /// Chunks that stay full, by region: which of them have been given to their ends.
    given: HashMap<u64, Vec<bool>>,
    /// Any records since it was asked last.
    has_given: bool,
}

impl Subscription {
    pub fn new() -> Subscription {
        Subscription {
            reader: ChunkReader::new(Begin::Any),
            given: HashMap::new(),
            has_given: false,
        }
    }

    /// Whether subscribers have been given records since the last call.
    pub fn has_given(&mut self) -> bool {
        std::mem::take(&mut self.has_given)
    }

    /// Reads the chunks that are not about to be written or dropped, at most `most` full ones. Returns how many full
    /// ones it read.
    pub fn round(
        &mut self,
        region: &Region,
        writer: &mut Writer,
        most: usize,
        heartbeat: &Heartbeat,
    ) -> Result<usize> {
        if !writer.has_subscribers() {
            self.reader.forget_all();
            self.given.clear();
            return Ok(0);
        }
        let given = self.given.get(&region.inode());
        let new = |chunk| given.is_none_or(|given| given.get(chunk) != Some(&true));
        let mut count = 0;
        for (name, chunk) in self.reader.full(region, new) {
            if !self.reader.is_early(name) {
                self.full(region, chunk, ChunkPhase::HandedOver, writer)?;
                // Threads that wait must not take a long round for the tool's end.
                heartbeat.beat();
                count += 1;
            }
            if count == most {
                self.reader.end_round_with(name.0);
                break;
            }
        }
        for chunk in 0..region.chunks() {
            if region.chunk_state(chunk) == CHUNK_OWNED
                && let Some(copied) = self.reader.copy_growing(region, chunk)
            {
                self.give(copied, writer)?;
            }
        }
        Ok(count)
    }

    /// Reads a full chunk that is kept. False: a thread is still to store a record in it.
    pub fn full(
        &mut self,
        region: &Region,
        chunk: usize,
        state: ChunkPhase,
        writer: &mut Writer,
    ) -> Result<bool> {
        let is_given = |given: &Vec<bool>| given.get(chunk) == Some(&true);
        if !writer.has_subscribers() || self.given.get(&region.inode()).is_some_and(is_given) {
            return Ok(true);
        }
        let copied = self.reader.copy(region, chunk, state);
        let is_whole = self.give(copied, writer)?;
        if is_whole {
            let given = self.given.entry(region.inode()).or_default();
            given.resize(region.chunks(), false);
            given[chunk] = true;
        }
        Ok(is_whole)
    }

    /// The chunk is another thread's from now on.
    pub fn freed(&mut self, region: &Region, chunk: usize) {
        let given = self.given.get_mut(&region.inode());
        if let Some(given) = given.and_then(|given| given.get_mut(chunk)) {
            *given = false;
        }
    }

    /// Forgets ended threads whose records were all given.
    pub fn forget_ended(&mut self, regions: &[Arc<Region>], writer: &mut Writer) {
        if !self.reader.has_read() {
            return;
        }
        let in_use = |region: &Arc<Region>| -> Vec<ThreadKey> {
            let chunks = (0..region.chunks())
                .filter(|chunk| region.chunk_state(*chunk) != CHUNK_FREE)
                .map(|chunk| name_of(region, chunk).0);
            chunks.collect()
        };
        let in_use: HashSet<ThreadKey> = regions.iter().flat_map(in_use).collect();
        let ended = |key: &ThreadKey| {
            !in_use.contains(key) && !thread_alive(key.process as i32, key.thread as i32)
        };
        for key in self.reader.forget(ended) {
            writer.published_all_of(key);
        }
    }

    fn give(&mut self, mut copied: Copied, writer: &mut Writer) -> Result<bool> {
        let mut cursor = copied.cursor;
        let is_whole = writer.publish(self.reader.bytes(&copied), copied.state, &mut cursor)?;
        copied.cursor = cursor;
        self.has_given = true;
        if is_whole {
            self.reader.advance(&copied);
        }
        Ok(is_whole)
    }
}
