//! Lets the trace's listeners hear of records: of those in chunks that threads still fill within a round of
//! collecting, of those in others before they are written or given up. Costs nothing while nobody listens.

use crate::collecting::collect::{bytes_of, next_first};
use crate::memory::region::Region;
use anyhow::Result;
use nopal_abi::*;
use nopal_process::thread_alive;
use nopal_trace::{State, Taken, ThreadKey, Writer};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub struct Hearing {
    buffer: Box<[u64; CHUNK_BYTES / 8]>,
    /// The number of the chunk of each thread that comes next, and what has been heard of it.
    threads: HashMap<ThreadKey, (u64, Taken)>,
    /// Chunks that stay full, by region: which of them have been heard to their ends.
    whole: HashMap<u64, Vec<bool>>,
    /// Whose chunk was the last of a round that had enough.
    last_heard: Option<ThreadKey>,
}

impl Hearing {
    pub fn new() -> Hearing {
        Hearing {
            buffer: Box::new([0; CHUNK_BYTES / 8]),
            threads: HashMap::new(),
            whole: HashMap::new(),
            last_heard: None,
        }
    }

    /// A round over chunks that are not about to be written or given up, of which no more than `most` are full. Returns
    /// how many of these there were.
    pub fn round(&mut self, region: &Region, writer: &mut Writer, most: usize) -> Result<usize> {
        if !writer.has_listeners() {
            self.threads.clear();
            self.whole.clear();
            return Ok(0);
        }
        let chunks = 0..region.chunks();
        let new = |chunk: &usize| !self.is_whole(region, *chunk);
        let mut full: Vec<_> = chunks
            .clone()
            .filter(|chunk| region.chunk_state(*chunk) == CHUNK_FULL)
            .filter(new)
            .map(|chunk| (name(&region.header(chunk)), chunk))
            .collect();
        full.sort_unstable();
        let mut heard = 0;
        for (name, chunk) in next_first(full, self.last_heard.take()) {
            // A signal handler hands its chunk over before that which it has interrupted.
            if self.next(name.0).is_none_or(|(next, _)| next >= name.1) {
                self.full(region, chunk, State::HandedOver, writer)?;
                // A long round must not look like the tool's end to threads that wait.
                region.beat();
                heard += 1;
            }
            if heard == most {
                self.last_heard = Some(name.0);
                break;
            }
        }
        for chunk in chunks {
            if region.chunk_state(chunk) == CHUNK_OWNED {
                self.growing(region, chunk, writer)?;
            }
        }
        Ok(heard)
    }

    /// A full chunk that is still to be kept. False: a record in it is still to be stored.
    pub fn full(
        &mut self,
        region: &Region,
        chunk: usize,
        state: State,
        writer: &mut Writer,
    ) -> Result<bool> {
        if !writer.has_listeners() || self.is_whole(region, chunk) {
            return Ok(true);
        }
        let used = region.copy(chunk, bytes_of(&mut self.buffer));
        let heard = self.hear(name(&region.header(chunk)), used, state, writer)?;
        if heard {
            let whole = self.whole.entry(region.inode()).or_default();
            whole.resize(region.chunks(), false);
            whole[chunk] = true;
        }
        Ok(heard)
    }

    /// The chunk is another thread's from now on.
    pub fn freed(&mut self, region: &Region, chunk: usize) {
        let whole = self.whole.get_mut(&region.inode());
        if let Some(whole) = whole.and_then(|whole| whole.get_mut(chunk)) {
            *whole = false;
        }
    }

    /// Forgets threads that have ended and of which everything has been heard.
    pub fn forget_ended(&mut self, regions: &[Arc<Region>], writer: &mut Writer) {
        if self.threads.is_empty() {
            return;
        }
        let in_use = |region: &Arc<Region>| -> Vec<ThreadKey> {
            let chunks = (0..region.chunks())
                .filter(|chunk| region.chunk_state(*chunk) != CHUNK_FREE)
                .map(|chunk| ThreadKey::of(&region.header(chunk)));
            chunks.collect()
        };
        let in_use: HashSet<ThreadKey> = regions.iter().flat_map(in_use).collect();
        let ended = |key: &ThreadKey| {
            !in_use.contains(key) && !thread_alive(key.process as i32, key.thread as i32)
        };
        for (key, _) in self.threads.extract_if(|key, _| ended(key)) {
            writer.heard_all_of(key);
        }
    }

    fn growing(&mut self, region: &Region, chunk: usize, writer: &mut Writer) -> Result<()> {
        let (key, sequence) = name(&region.header(chunk));
        let (next, heard) = self.next(key).unwrap_or((sequence, Taken::default()));
        // A thread that has just taken the chunk has not filled in the header.
        if key.thread == 0 || next != sequence || !region.has_more(chunk, heard.bytes()) {
            return Ok(());
        }
        let used = region.copy_growing(chunk, heard.bytes(), bytes_of(&mut self.buffer));
        // It may have given the chunk back unused, and another have taken it.
        if name(&region.header(chunk)) == (key, sequence) {
            self.hear((key, sequence), used, State::Growing, writer)?;
        }
        Ok(())
    }

    /// What is in the buffer, of a chunk of this thread and number.
    fn hear(
        &mut self,
        (key, sequence): (ThreadKey, u64),
        used: usize,
        state: State,
        writer: &mut Writer,
    ) -> Result<bool> {
        let (next, heard) = self.next(key).unwrap_or((sequence, Taken::default()));
        let mut heard = if next == sequence {
            heard
        } else {
            Taken::default()
        };
        let bytes = &mut bytes_of(&mut self.buffer)[..used];
        let whole = writer.hear(bytes, state, &mut heard)?;
        let now = match state {
            State::Growing => (sequence, heard),
            _ if !whole => return Ok(false),
            _ => (next.max(sequence + 1), Taken::default()),
        };
        self.threads.insert(key, now);
        Ok(whole)
    }

    fn next(&self, key: ThreadKey) -> Option<(u64, Taken)> {
        self.threads.get(&key).copied()
    }

    fn is_whole(&self, region: &Region, chunk: usize) -> bool {
        let whole = self.whole.get(&region.inode());
        whole.is_some_and(|whole| whole.get(chunk) == Some(&true))
    }
}

/// Whose chunk it is, and which of them.
fn name(header: &ChunkHeader) -> (ThreadKey, u64) {
    (ThreadKey::of(header), header.sequence)
}
