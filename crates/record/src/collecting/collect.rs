//! Collects chunks from the regions and gives them to the trace's writer, each thread's in order.

use crate::collecting::chunk_reader::{Begin, ChunkReader, Copied, name_of};
use crate::collecting::counted::Counted;
use crate::collecting::fair_mutex::FairMutex;
use crate::collecting::heartbeat::Heartbeat;
use crate::collecting::kernel_records::FromKernelEvents;
use crate::collecting::meter::Meter;
use crate::collecting::naming::{Naming, is_whole};
use crate::collecting::open_calls::OpenCalls;
use crate::collecting::progress::Sample;
use crate::collecting::slowest::AwaitedRecords;
use crate::collecting::subscription::Subscription;
use crate::collecting::totals::{Totals, count_events};
use crate::collecting::trace_end::{Limit, TraceEnd};
use crate::memory::region::Region;
use anyhow::Result;
use nopal_abi::*;
use nopal_process::thread_alive;
use nopal_trace::{Chunk, ChunkCursor, ChunkPhase, Note, ThreadKey, Writer};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Chunks that are written in a round while somebody listens, or a budget is to be held: some milliseconds' work.
const READ_AT_ONCE: usize = 32;

/// Whether chunks are written as they come, or only the newest are kept until the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    All,
    Newest,
}

pub struct Collector {
    keep: Keep,
    pub end: TraceEnd,
    /// Where somebody watches.
    pub sample: Option<Sample>,
    pub heartbeat: Heartbeat,
    /// While there is a budget.
    pub meter: Arc<FairMutex<Option<Meter>>>,
    /// For the trace's files.
    pub reader: ChunkReader,
    pub subscription: Subscription,
    /// Snapshots that are being written.
    pub writing: Vec<JoinHandle<()>>,
    pub(super) awaited: AwaitedRecords,
    pub naming: Naming,
    /// The open calls of threads of which records were given up.
    pub(super) open_calls: HashMap<ThreadKey, OpenCalls>,
    pub(super) from_kernel_events: FromKernelEvents,
    counted: Counted,
    pub totals: Totals,
    /// What the trace lacks for other reasons, for the user.
    pub warnings: Vec<String>,
}

impl Collector {
    pub fn new(keep: Keep, limit: Option<Limit>) -> Collector {
        Collector {
            keep,
            end: TraceEnd::new(limit),
            sample: None,
            heartbeat: Heartbeat::default(),
            meter: Arc::new(FairMutex::new(None)),
            reader: ChunkReader::new(Begin::First),
            subscription: Subscription::new(),
            writing: Vec::new(),
            awaited: AwaitedRecords::default(),
            naming: Naming::default(),
            open_calls: HashMap::new(),
            from_kernel_events: FromKernelEvents::default(),
            counted: Counted::default(),
            totals: Totals::default(),
            warnings: Vec::new(),
        }
    }

    pub fn keeps_newest(&self) -> bool {
        self.keep == Keep::Newest
    }

    /// Writes the chunks that threads have handed over; only some of them if a subscriber needs a quick answer, or
    /// functions may have to go off. Returns the number of chunks.
    pub fn round(&mut self, region: &Region, writer: &mut Writer) -> Result<usize> {
        let most = match writer.has_subscribers() || self.meter.lock().is_some() {
            true => READ_AT_ONCE,
            false => usize::MAX,
        };
        // Subscribers get records before these are written.
        let given = self
            .subscription
            .round(region, writer, most, &self.heartbeat)?;
        let freed = match self.keep {
            Keep::All => self.write(region, writer, ChunkPhase::HandedOver, most),
            Keep::Newest => {
                let measured = self.measure_kept(region, most);
                let given_up = self.give_up(region, usize::MAX, writer)?;
                Ok(measured + given_up)
            }
        }?;
        Ok(given + freed)
    }

    /// Writes what threads have recorded so far in chunks that they still fill, and notes the names that they have now.
    /// The flight recorder has no use for the former.
    pub fn flush(&mut self, region: &Region, writer: &mut Writer) -> Result<()> {
        for key in owners(region).into_iter().filter(|key| is_whole(*key)) {
            self.naming.note(region, writer, key)?;
        }
        if self.keep == Keep::Newest {
            return Ok(());
        }
        // Threads may hand chunks over faster than they are written: only those count that they have now.
        let held: Vec<bool> = (0..region.chunks())
            .map(|chunk| region.chunk_state(chunk) == CHUNK_OWNED)
            .collect();
        self.write(region, writer, ChunkPhase::HandedOver, usize::MAX)?;
        self.subscription
            .round(region, writer, usize::MAX, &self.heartbeat)?;
        for chunk in 0..region.chunks() {
            if region.chunk_state(chunk) != CHUNK_OWNED || self.end.is_reached() {
                continue;
            }
            if let Some(copied) = self.reader.copy_growing(region, chunk) {
                self.write_rest(region, copied, writer)?;
                self.heartbeat.beat();
            }
        }
        // One that was handed over since the first look has records from before the flush, its successor has none.
        let wanted = |chunk: usize| held[chunk];
        self.write_wanted(region, writer, ChunkPhase::HandedOver, usize::MAX, wanted)?;
        Ok(())
    }

    /// Notes the threads that have begun to record.
    pub fn meet_threads(&mut self, region: &Region, writer: &mut Writer) -> Result<()> {
        let met = self.naming.meet(region, writer);
        self.end.unless_full(met)
    }

    /// Takes the chunks that ended threads still hold. `ended` must be right: a living thread would go on writing into what
    /// is another's by then.
    pub fn reclaim(&mut self, region: &Region, mut ended: impl FnMut(ThreadKey) -> bool) {
        for chunk in 0..region.chunks() {
            // Looked at first: a thread may give a chunk back unused and end, and then another, which has not put its
            // name there yet, has the chunk of one that has ended.
            let Some(owner) = region.owner(chunk) else {
                continue;
            };
            let thread = ThreadKey::of(&region.header(chunk));
            self.heartbeat.beat();
            // A thread that has just taken the chunk has not filled in the header.
            if thread.thread != 0 && ended(thread) {
                region.take_over(chunk, owner);
            }
        }
    }

    /// Writes all remaining records, also those of chunks that threads still hold: no thread records any more.
    pub fn finish(&mut self, region: &Region, writer: &mut Writer) -> Result<()> {
        for chunk in 0..region.chunks() {
            if let Some(owner) = region.owner(chunk) {
                region.take_over(chunk, owner);
            }
        }
        self.write(region, writer, ChunkPhase::Settled, usize::MAX)?;
        let grown = self.counted.grown(region, &writer.counted_sites());
        self.note_grown(grown, writer)?;
        self.counted.forget(region);
        Ok(())
    }

    /// Notes how often sites have been counted, where that has grown.
    pub fn note_counted(
        &mut self,
        regions: &[Arc<Region>],
        writer: &FairMutex<Writer>,
    ) -> Result<()> {
        let sites = writer.lock().counted_sites();
        if sites.is_empty() {
            return Ok(());
        }
        for region in regions {
            let grown = self.counted.grown(region, &sites);
            self.note_grown(grown, &mut writer.lock())?;
        }
        Ok(())
    }

    fn note_grown(&mut self, grown: Option<Note>, writer: &mut Writer) -> Result<()> {
        let Some(note) = grown.filter(|_| !self.end.is_reached()) else {
            return Ok(());
        };
        let noted = writer.note(&note);
        self.weigh(writer);
        self.end.unless_full(noted)
    }

    /// Writes at most `most` chunks. The next round begins behind the thread with which this one ends.
    fn write(
        &mut self,
        region: &Region,
        writer: &mut Writer,
        state: ChunkPhase,
        most: usize,
    ) -> Result<usize> {
        self.write_wanted(region, writer, state, most, |_| true)
    }

    fn write_wanted(
        &mut self,
        region: &Region,
        writer: &mut Writer,
        state: ChunkPhase,
        most: usize,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<usize> {
        let is_settled = state == ChunkPhase::Settled;
        let mut freed = 0;
        let waiting = self.reader.full(region, wanted);
        let owners = if waiting.is_empty() {
            HashSet::new()
        } else {
            owners(region)
        };
        let mut threads = waiting.into_iter().peekable();
        while let Some((name, chunk)) = threads.next() {
            let (key, _) = name;
            let is_missing_one = !is_settled && self.reader.is_early(name);
            // Either its predecessor is about to be handed over, or a record in it is still to be stored.
            let used = if is_missing_one || !self.subscription.full(region, chunk, state, writer)? {
                None
            } else {
                let copied = self.reader.copy(region, chunk, state);
                let used = copied.used;
                self.write_rest(region, copied, writer)?.then_some(used)
            };
            let Some(used) = used else {
                while threads.next_if(|((other, _), _)| *other == key).is_some() {}
                continue;
            };
            // Threads that wait must not take a long round for the tool's end. Before the chunk is free: one that it wakes may
            // find that another one has it.
            self.heartbeat.beat();
            region.free(chunk, used);
            self.subscription.freed(region, chunk);
            freed += 1;
            let last = threads.peek().is_none_or(|((other, _), _)| *other != key);
            // A thread that has ended takes no more chunks, and may have left some that are not written now.
            if last
                && !owners.contains(&key)
                && !thread_alive(key.process as i32, key.thread as i32)
                && !self.reader.has_more(region, key)
            {
                writer.thread_ended(key.process, key.thread, key.begin);
            }
            if freed == most {
                self.reader.end_round_with(key);
                break;
            }
        }
        Ok(freed)
    }

    /// Writes what is not in the trace of a chunk that was copied. False: a record in it is still to be stored.
    fn write_rest(
        &mut self,
        region: &Region,
        mut copied: Copied,
        writer: &mut Writer,
    ) -> Result<bool> {
        self.naming.note(region, writer, copied.name.0)?;
        self.naming
            .note_given(writer, copied.name.0, copied.given)?;
        let rest = copied.cursor.bytes() / 8;
        if let Some(sample) = &mut self.sample {
            let first = rest.max(size_of::<ChunkHeader>() / 8);
            sample.take(self.reader.words(&copied).get(first..).unwrap_or_default());
        }
        let unwritten = |reader: &ChunkReader| match copied.state {
            ChunkPhase::Growing => 0,
            _ => count_events(reader.words(&copied).get(rest..).unwrap_or_default()),
        };
        let mut cursor = copied.cursor;
        let written = match self.end.is_reached() {
            true => None,
            false => Some(writer.rest(self.reader.bytes(&copied), copied.state, &mut cursor)),
        };
        match written {
            None => self.totals.given_up += unwritten(&self.reader),
            Some(Ok(chunk @ Chunk::Written { .. })) => self.count(chunk, writer),
            Some(Ok(Chunk::Empty | Chunk::Repeated)) => {}
            Some(Ok(Chunk::Unfinished)) => return Ok(false),
            Some(Err(error)) => {
                self.end.unless_full(Err(error))?;
                self.totals.given_up += unwritten(&self.reader);
            }
        }
        if let Some(meter) = &mut *self.meter.lock() {
            let new = rest.max(size_of::<ChunkHeader>() / 8)..cursor.bytes() / 8;
            let words = self.reader.words(&copied).get(new);
            meter.take(copied.name.0.process, words.unwrap_or_default());
        }
        copied.cursor = cursor;
        self.reader.advance(&copied);
        Ok(true)
    }

    /// Writes a chunk of a task of the kernel's, in which nothing is missing that could still come.
    pub fn write_chunk_of_task(&mut self, chunk: &mut [u8], writer: &mut Writer) -> Result<()> {
        if self.end.is_reached() {
            return Ok(());
        }
        self.heartbeat.beat();
        match writer.rest(chunk, ChunkPhase::Settled, &mut ChunkCursor::default()) {
            Ok(chunk) => {
                self.count(chunk, writer);
                Ok(())
            }
            Err(error) => self.end.unless_full(Err(error)),
        }
    }

    fn count(&mut self, chunk: Chunk, writer: &Writer) {
        if let Chunk::Written { .. } = chunk {
            self.totals.count(&chunk);
            self.weigh(writer);
        }
    }

    /// Ends the trace where it has grown to its limit.
    pub(super) fn weigh(&mut self, writer: &Writer) {
        self.totals.bytes = writer.bytes();
        self.end.weigh(self.totals.bytes);
    }
}

/// The threads that hold a chunk.
fn owners(region: &Region) -> HashSet<ThreadKey> {
    (0..region.chunks())
        .filter(|chunk| region.chunk_state(*chunk) == CHUNK_OWNED)
        .map(|chunk| name_of(region, chunk).0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_beside::Mutex;

    /// The header of a chunk is the process's own word.
    #[test]
    fn a_chunk_may_say_that_it_is_the_last_that_can_be_counted() {
        use nopal_trace::Session;
        use std::os::fd::{AsFd, OwnedFd};
        use std::os::unix::fs::FileExt;
        use zerocopy::IntoBytes;

        let scratch = tempfile::tempdir().unwrap();
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let region = Region::create(file, 2 * CHUNK_BYTES as u64, 0, 0, 0).unwrap();
        let file = std::fs::File::from(region.file().as_fd().try_clone_to_owned().unwrap());
        let chunks_at = region.layout().chunk_offset;
        let mut states_at = [0; 8];
        file.read_exact_at(
            &mut states_at,
            std::mem::offset_of!(nopal_abi::Region, state_offset) as u64,
        )
        .unwrap();
        for chunk in 0..2 {
            let header = ChunkHeader {
                sequence: u64::MAX,
                process: 1,
                thread: 1,
                ..ChunkHeader::default()
            };
            let at = chunks_at + chunk * CHUNK_BYTES as u64;
            file.write_all_at(header.as_bytes(), at).unwrap();
            file.write_all_at(
                &CHUNK_FULL.to_le_bytes(),
                u64::from_le_bytes(states_at) + 4 * chunk,
            )
            .unwrap();
        }
        let mut writer = Writer::create(&scratch.path().join("trace"), Session::default()).unwrap();
        let mut collector = Collector::new(Keep::All, None);
        let key = name_of(&region, 0).0;
        assert_eq!(key.thread, 1);
        assert!(collector.reader.has_more(&region, key));
        collector.finish(&region, &mut writer).unwrap();
        assert!(!collector.reader.has_more(&region, key));
        assert_eq!(region.chunk_state(0), CHUNK_FREE);
        assert_eq!(collector.totals.events, 0);
    }

    /// Threads that wait for room in one region are told while another one is written.
    #[test]
    fn all_regions_beat_while_one_is_written() {
        use nopal_trace::Session;
        use std::mem::offset_of;
        use std::os::fd::OwnedFd;
        use std::os::unix::fs::FileExt;
        use zerocopy::IntoBytes;

        let scratch = tempfile::tempdir().unwrap();
        let create = || {
            let file = tempfile::tempfile().unwrap();
            let shared = OwnedFd::from(file.try_clone().unwrap());
            let region = Region::create(shared, 2 * CHUNK_BYTES as u64, 0, 0, 0).unwrap();
            (file, Arc::new(region))
        };
        let [(file, written), (other_file, other)] = [create(), create()];
        let layout = written.layout();
        let header = ChunkHeader {
            process: 1,
            thread: 1,
            ..ChunkHeader::default()
        };
        file.write_all_at(header.as_bytes(), layout.chunk_offset)
            .unwrap();
        file.write_all_at(&CHUNK_FULL.to_le_bytes(), layout.state_offset)
            .unwrap();
        let mut writer = Writer::create(&scratch.path().join("trace"), Session::default()).unwrap();
        let mut collector = Collector::new(Keep::All, None);
        let regions = vec![written.clone(), other];
        collector.heartbeat = Heartbeat::of(Arc::new(Mutex::new(regions)));
        collector.finish(&written, &mut writer).unwrap();
        assert_eq!(written.chunk_state(0), CHUNK_FREE);
        for file in [file, other_file] {
            let mut beats = [0; 4];
            let at = offset_of!(nopal_abi::Region, heartbeat) as u64;
            file.read_exact_at(&mut beats, at).unwrap();
            assert!(u32::from_le_bytes(beats) > 0);
        }
    }

    /// A process may write what it likes into its counters.
    #[test]
    fn counts_are_noted_of_counted_sites_that_have_grown_and_within_the_limit() {
        use nopal_trace::{Session, SiteState};
        use std::os::fd::{AsFd, OwnedFd};
        use std::os::unix::fs::FileExt;

        let scratch = tempfile::tempdir().unwrap();
        let trace = scratch.path().join("trace");
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let region = Region::create(file, 2 * CHUNK_BYTES as u64, 0, 0, 0).unwrap();
        let file = std::fs::File::from(region.file().as_fd().try_clone_to_owned().unwrap());
        let counters_at = region.layout().counter_offset;
        let pages_at = std::mem::offset_of!(nopal_abi::Region, counter_pages) as u64;
        file.write_all_at(&1u32.to_le_bytes(), pages_at).unwrap();
        file.write_all_at(&1u32.to_le_bytes(), counters_at).unwrap();
        let count = |site: u64, calls: u64| {
            let at = counters_at + COUNTERS_AT as u64 + 8 * site;
            // The upper bits lead to a sampled call.
            let word = calls | 1 << COUNT_BITS;
            file.write_all_at(&word.to_le_bytes(), at).unwrap();
        };
        let noted = || {
            let notes = std::fs::read_to_string(trace.join("session/notes")).unwrap();
            let lines = notes
                .lines()
                .filter_map(|line| line.split_once("\"calls\":"));
            let calls = lines.map(|(_, calls)| calls.split('}').next().unwrap().to_owned());
            calls.collect::<Vec<_>>()
        };
        let regions = [Arc::new(region)];
        let writer = FairMutex::new(Writer::create(&trace, Session::default()).unwrap());
        let mut collector = Collector::new(Keep::All, None);
        count(1, 10);
        count(2, 20);
        collector.note_counted(&regions, &writer).unwrap();
        assert_eq!(noted(), [""; 0]);
        let state = |state, sites: &[u32]| Note::State {
            counter: 1,
            state,
            sites: sites.into(),
            kept: false,
            sampled: false,
        };
        let states = [
            state(SiteState::Counted, &[1, 600, u32::MAX]),
            state(SiteState::Off, &[2]),
        ];
        for state in states {
            writer.lock().note(&state).unwrap();
        }
        for calls in [10, 9, 10] {
            count(1, calls);
            collector.note_counted(&regions, &writer).unwrap();
            assert_eq!(noted(), ["[[1,10]]"]);
        }
        count(1, 11);
        collector.end.limit = Some(Limit::Asked(writer.lock().bytes() + 1));
        collector.note_counted(&regions, &writer).unwrap();
        assert_eq!(noted(), ["[[1,10]]", "[[1,11]]"]);
        assert!(collector.end.reason().unwrap().contains("--max-size"));
        count(1, 12);
        collector.finish(&regions[0], &mut writer.lock()).unwrap();
        assert_eq!(noted().len(), 2);
    }
}
