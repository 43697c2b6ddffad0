//! Measures what the recording of each function costs, and what it tells, while there is a budget.

use crate::collecting::collect::Collector;
use crate::collecting::notes::counter;
use crate::memory::region::Region;
use nopal_abi::{CHUNK_FULL, ChunkHeader, Cursor, Event, Style};
use nopal_trace::ChunkPhase;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Calls within each other that are measured: of the outer ones of more only the records count. Among them are calls that
/// were left without an exit, and each exit without an entry is compared with all of them.
const DEEPEST: usize = 64;

/// The records of a site since the meter was read last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    pub site: u32,
    /// Records of entries and exits.
    pub records: u64,
    /// Calls whose both ends were in one part of a chunk, and their times in ticks: the sum, and that of the squares.
    pub calls: u64,
    pub ticks: f64,
    pub squares: f64,
}

impl Reading {
    /// The mean time of a call, and how far calls differ from it (the standard deviation). Of the calls that are too long
    /// to lie in one part of a chunk nothing is known.
    pub fn mean_and_deviation(&self) -> Option<(f64, f64)> {
        let calls = self.calls as f64;
        let mean = self.ticks / calls;
        let variance = (self.squares / calls - mean * mean).max(0.0);
        (self.calls > 0).then(|| (mean, variance.sqrt()))
    }
}

/// The records of all sites.
pub struct Meter {
    /// When it began, by the counter.
    begun: u64,
    /// By site.
    sites: Vec<Reading>,
    /// The sites with records since the last reading.
    busy: Vec<u32>,
    records: u64,
    /// Processes that have recorded since the meter began.
    processes: HashSet<u32>,
    open: Vec<(u32, u64)>,
    /// Chunks that stay full, by the region's inode: which of them have been measured.
    kept: HashMap<u64, Vec<bool>>,
}

impl Meter {
    pub fn new() -> Meter {
        Meter {
            begun: counter(),
            sites: Vec::new(),
            busy: Vec::new(),
            records: 0,
            processes: HashSet::new(),
            open: Vec::new(),
            kept: HashMap::new(),
        }
    }

    /// Records that a process has made, each once.
    pub fn take(&mut self, process: u32, words: &[u64]) {
        self.processes.insert(process);
        self.open.clear();
        let mut records = Cursor::new(words);
        let mut clock = 0;
        while let Some(record) = records.take(clock) {
            clock = record.clock;
            match record.event {
                Event::Entry { site, style, .. } => {
                    self.count(site);
                    if style == Style::Wrapped {
                        self.open(site, clock);
                    }
                }
                Event::Exit { site, .. } => {
                    self.count(site);
                    self.end(site, clock);
                }
                // Calls may have been left.
                Event::Resync { .. } => self.open.clear(),
                _ => {}
            }
        }
    }

    /// Records of a chunk that is given up: the last time for those that have not been measured.
    pub fn take_last(&mut self, region: &Region, chunk: usize, process: u32, words: &[u64]) {
        let kept = self.kept.get_mut(&region.inode());
        let known = kept.and_then(|kept| kept.get_mut(chunk));
        let was_known = known.is_some_and(std::mem::take);
        if !was_known && self.has_seen_begin_of(region, chunk) {
            self.take(process, words);
        }
    }

    /// Whether a chunk was begun after the meter.
    fn has_seen_begin_of(&self, region: &Region, chunk: usize) -> bool {
        region.header(chunk).clock_begin >= self.begun
    }

    /// Forgets the chunks of other regions.
    pub fn forget_all_but(&mut self, regions: &[Arc<Region>]) {
        let is_there = |inode| regions.iter().any(|region| region.inode() == inode);
        self.kept.retain(|inode, _| is_there(*inode));
    }

    fn count(&mut self, site: u32) {
        let at = site as usize;
        if self.sites.len() <= at {
            self.sites.resize(at + 1, Reading::default());
        }
        let reading = &mut self.sites[at];
        if reading.records == 0 {
            reading.site = site;
            self.busy.push(site);
        }
        reading.records += 1;
        self.records += 1;
    }

    fn open(&mut self, site: u32, clock: u64) {
        if self.open.len() == DEEPEST {
            self.open.drain(..DEEPEST / 2);
        }
        self.open.push((site, clock));
    }

    fn end(&mut self, site: u32, clock: u64) {
        let Some(open) = self.open.iter().rposition(|(open, _)| *open == site) else {
            return;
        };
        let ticks = clock.saturating_sub(self.open[open].1) as f64;
        self.open.truncate(open);
        let reading = &mut self.sites[site as usize];
        reading.calls += 1;
        reading.ticks += ticks;
        reading.squares += ticks * ticks;
    }

    /// Records since the last reading.
    pub fn records(&self) -> u64 {
        self.records
    }

    pub fn processes(&self) -> &HashSet<u32> {
        &self.processes
    }

    /// The sites with records since the last reading.
    pub fn read(&mut self) -> Vec<Reading> {
        self.records = 0;
        let busy = std::mem::take(&mut self.busy).into_iter();
        busy.map(|site| std::mem::take(&mut self.sites[site as usize]))
            .collect()
    }
}

impl Collector {
    /// Measures what the flight recorder keeps: the chunks that were handed over since, `most` of them. Returns how many.
    pub fn measure_kept(&mut self, region: &Region, most: usize) -> usize {
        let mut meter = self.meter.lock();
        let Some(meter) = &mut *meter else {
            return 0;
        };
        let mut kept = meter.kept.remove(&region.inode()).unwrap_or_default();
        kept.resize(region.chunks(), false);
        let mut measured = 0;
        let new = kept.iter_mut().enumerate();
        let new = new.filter(|(chunk, known)| !**known && region.chunk_state(*chunk) == CHUNK_FULL);
        for (chunk, known) in new {
            if measured == most {
                break;
            }
            *known = true;
            if !meter.has_seen_begin_of(region, chunk) {
                continue;
            }
            let copied = self.reader.copy(region, chunk, ChunkPhase::Settled);
            let words = self
                .reader
                .words(&copied)
                .get(size_of::<ChunkHeader>() / 8..);
            meter.take(copied.name.0.process, words.unwrap_or_default());
            self.heartbeat.beat();
            measured += 1;
        }
        meter.kept.insert(region.inode(), kept);
        measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_abi::{KIND_ENTRY, KIND_EXIT, KIND_ONLY, KIND_TAIL, Word};

    #[test]
    fn calls_are_measured_that_begin_and_end_in_a_part() {
        let word = |clock, kind, site| Word::new(kind, site, 8, clock).0;
        let mut meter = Meter::new();
        meter.take(
            4711,
            &[
                word(5, KIND_EXIT, 9),
                word(10, KIND_ENTRY, 1),
                word(12, KIND_ENTRY, 2),
                word(14, KIND_EXIT, 2),
                word(20, KIND_ENTRY, 2),
                word(24, KIND_EXIT, 2),
                word(30, KIND_EXIT, 1),
                word(40, KIND_ONLY, 3),
                word(50, KIND_ENTRY, 1),
            ],
        );
        assert_eq!(meter.records(), 9);
        let mut readings = meter.read();
        readings.sort_by_key(|reading| reading.site);
        let records: Vec<(u32, u64, u64)> = readings
            .iter()
            .map(|one| (one.site, one.records, one.calls))
            .collect();
        assert_eq!(records, [(1, 3, 1), (2, 4, 2), (3, 1, 0), (9, 1, 0)]);
        assert_eq!(readings[0].mean_and_deviation(), Some((20.0, 0.0)));
        assert_eq!(readings[1].mean_and_deviation(), Some((3.0, 1.0)));
        assert_eq!(readings[2].mean_and_deviation(), None);
        assert_eq!((meter.records(), meter.read()), (0, Vec::new()));
        // The end of the last one of site 1 comes in another part.
        meter.take(4712, &[word(60, KIND_EXIT, 1)]);
        assert_eq!(meter.read()[0].calls, 0);
        assert_eq!(meter.processes().len(), 2);
    }

    /// A server's loop calls functions that have no exits, and leaves others by jumps.
    #[test]
    fn calls_are_measured_after_many_without_an_exit() {
        let word = |clock, kind, site| Word::new(kind, site, 8, clock).0;
        let without = (0..1000).map(|clock| match clock % 3 {
            0 => word(clock, KIND_ENTRY, 5),
            1 => word(clock, KIND_ONLY, 6),
            _ => word(clock, KIND_TAIL, 7),
        });
        let mut words: Vec<u64> = without.collect();
        words.extend([word(1001, KIND_ENTRY, 1), word(1005, KIND_EXIT, 1)]);
        let mut meter = Meter::new();
        meter.take(4711, &words);
        let readings = meter.read();
        let of = |site| readings.iter().find(|one| one.site == site).unwrap();
        assert_eq!(of(1).mean_and_deviation(), Some((4.0, 0.0)));
        assert!(
            [5, 6, 7]
                .iter()
                .all(|site| of(*site).records > 300 && of(*site).calls == 0)
        );
    }
}
