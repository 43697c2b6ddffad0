//! The flight recorder gives up the oldest records, and remembers which calls were open behind them.

use crate::collecting::chunk_reader::name_of;
use crate::collecting::collect::Collector;
use crate::collecting::totals::count_events;
use crate::memory::region::Region;
use anyhow::Result;
use nopal_abi::{CHUNK_FULL, CHUNK_OWNED, ChunkHeader};
use nopal_process::thread_alive;
use nopal_trace::{ChunkPhase, Note, ThreadKey, Writer};
use std::collections::HashSet;
use std::sync::Arc;

impl Collector {
    /// The flight recorder keeps a quarter of the chunks free, at the cost of the oldest, of which it gives up so many
    /// at most, unless they are awaited. Returns how many.
    pub fn give_up(&mut self, region: &Region, most: usize, writer: &mut Writer) -> Result<usize> {
        let taken = region.occupancy().taken;
        let kept_free = (region.in_use() / 4).max(1);
        let missing = (taken + kept_free).saturating_sub(region.in_use());
        if missing == 0 {
            return Ok(0);
        }
        let full = (0..region.chunks()).filter(|chunk| region.chunk_state(*chunk) == CHUNK_FULL);
        let mut full: Vec<(u64, usize)> = full
            .map(|chunk| (region.header(chunk).clock_begin, chunk))
            .collect();
        full.sort_unstable();
        full.truncate(missing.min(most));
        for (given_up, (_, chunk)) in full.iter().enumerate() {
            self.subscription
                .full(region, *chunk, ChunkPhase::Settled, writer)?;
            let copied = self.reader.copy(region, *chunk, ChunkPhase::Settled);
            let records = &self.reader.words(&copied)[size_of::<ChunkHeader>() / 8..];
            let header = region.header(*chunk);
            if self.awaited.are_in(records, header.clock_begin) {
                return Ok(given_up);
            }
            let events = count_events(records);
            self.totals.given_up += events;
            self.totals.dropped += events;
            let open_calls = self.open_calls.entry(copied.name.0).or_default();
            open_calls.pass(&header, records, events);
            if let Some(meter) = &mut *self.meter.lock() {
                meter.take_last(region, *chunk, copied.name.0.process, records);
            }
            region.free(*chunk, copied.used);
            self.subscription.freed(region, *chunk);
        }
        Ok(full.len())
    }

    /// The calls that were open where each thread's records begin that are held.
    pub fn open_calls(&self) -> Vec<Note> {
        let threads = self.open_calls.iter();
        let notes = threads.filter_map(|(thread, calls)| calls.note(*thread));
        notes.collect()
    }

    /// How many events of each thread were given up, of those that may still have records.
    pub fn given_up(&self) -> Vec<(ThreadKey, u64)> {
        let threads = self.open_calls.iter();
        threads
            .map(|(thread, calls)| (*thread, calls.given_up()))
            .collect()
    }

    /// Forgets the open calls of threads that have no records any more, and what was measured of other regions.
    pub fn forget_past(&mut self, regions: &[Arc<Region>]) {
        if let Some(meter) = &mut *self.meter.lock() {
            meter.forget_all_but(regions);
        }
        if self.open_calls.is_empty() {
            return;
        }
        let held = |region: &Arc<Region>| -> Vec<ThreadKey> {
            let chunks = (0..region.chunks())
                .filter(|chunk| matches!(region.chunk_state(*chunk), CHUNK_OWNED | CHUNK_FULL));
            chunks.map(|chunk| name_of(region, chunk).0).collect()
        };
        let held: HashSet<ThreadKey> = regions.iter().flat_map(held).collect();
        let is_over = |key: &ThreadKey| {
            !held.contains(key) && !thread_alive(key.process as i32, key.thread as i32)
        };
        self.open_calls.retain(|key, _| !is_over(key));
    }
}
