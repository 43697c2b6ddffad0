//! Collects chunks from the regions and gives them to the trace's writer, each thread's in order.

use crate::collecting::chunk_reader::{Begin, ChunkReader, Copied, name_of};
use crate::collecting::meter::Meter;
use crate::collecting::naming::{Naming, is_whole, task_note};
use crate::collecting::notes::counter;
use crate::collecting::open_calls::OpenCalls;
use crate::collecting::progress::Sample;
use crate::collecting::subscription::Subscription;
use crate::memory::region::{Lost, Region};
use anyhow::Result;
use nopal_abi::*;
use nopal_beside::Mutex;
use nopal_kernel_events::Update;
use nopal_process::thread_alive;
use nopal_trace::{
    Chunk, ChunkCursor, ChunkPhase, KernelEvent, KernelRecord, Note, Succession, Task, ThreadKey,
    Writer, losses,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The counts of the collected records.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    pub events: u64,
    pub holes: u64,
    pub damage: u64,
    /// Calls that were left out since they were short.
    pub short: u64,
    /// Kernel events, and those of them that are missing.
    pub system: u64,
    pub kernel_events_lost: u64,
    /// Functions of the kernel that its module traces.
    pub kernel_functions: u64,
    /// Switches away from idle tasks that the kernel did not tell.
    pub kernel_events_missed: u64,
    /// Bytes of records written.
    pub bytes: u64,
    /// Events that were recorded and then dropped: by the flight recorder, or because the disk was full.
    pub given_up: u64,
    /// Those among them that the flight recorder dropped for newer ones.
    pub dropped: u64,
}

/// Chunks that are written in a round while somebody listens, or a budget is to be held: some milliseconds' work.
const READ_AT_ONCE: usize = 32;

/// Whether chunks are written as they come, or only the newest are kept until the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    All,
    Newest,
}

/// The size at which a trace ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Asked(u64),
    /// Half of what was free when it began.
    Disk(u64),
}

impl Limit {
    pub fn bytes(self) -> u64 {
        match self {
            Limit::Asked(bytes) | Limit::Disk(bytes) => bytes,
        }
    }
}

pub struct Collector {
    keep: Keep,
    /// Bytes of the trace at which it ends.
    pub limit: Option<Limit>,
    /// Where somebody watches.
    pub sample: Option<Sample>,
    /// While there is a budget.
    pub meter: Arc<Mutex<Option<Meter>>>,
    /// For the trace's files.
    pub reader: ChunkReader,
    pub subscription: Subscription,
    /// Snapshots that are being written.
    pub writing: Vec<JoinHandle<()>>,
    pub naming: Naming,
    /// The open calls of threads of which records were given up.
    open_calls: HashMap<ThreadKey, OpenCalls>,
    /// Threads of kernel events.
    met: HashSet<(u32, u32)>,
    /// Tasks of other processes that have been noted.
    others: HashSet<u32>,
    succession: Succession,
    /// How often sites had been counted when that was last noted, by the regions' inodes.
    counted: HashMap<u64, HashMap<u32, u64>>,
    pub totals: Totals,
    /// Nothing more is written: the disk or the limit is full. The reason, once.
    pub stopped: Option<String>,
}

impl Collector {
    pub fn new(keep: Keep, limit: Option<Limit>) -> Collector {
        Collector {
            keep,
            limit,
            sample: None,
            meter: Arc::default(),
            reader: ChunkReader::new(Begin::First),
            subscription: Subscription::new(),
            writing: Vec::new(),
            naming: Naming::default(),
            open_calls: HashMap::new(),
            met: HashSet::new(),
            others: HashSet::new(),
            succession: Succession::default(),
            counted: HashMap::new(),
            totals: Totals::default(),
            stopped: None,
        }
    }

    pub fn keeps_newest(&self) -> bool {
        self.keep == Keep::Newest
    }

    /// Writes what threads have handed over; not all of it where somebody listens, who is to be obeyed before long, or
    /// functions may have to go off.
    /// Returns how many chunks it was about.
    pub fn round(&mut self, region: &Region, writer: &mut Writer) -> Result<usize> {
        let most = match writer.has_subscribers() || self.meter.lock().is_some() {
            true => READ_AT_ONCE,
            false => usize::MAX,
        };
        // Subscribers get records before these are written.
        let given = self.subscription.round(region, writer, most)?;
        let freed = match self.keep {
            Keep::All => self.write(region, writer, ChunkPhase::HandedOver, most),
            Keep::Newest => self.give_up(region, usize::MAX, writer),
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
        self.subscription.round(region, writer, usize::MAX)?;
        for chunk in 0..region.chunks() {
            if region.chunk_state(chunk) != CHUNK_OWNED || self.stopped.is_some() {
                continue;
            }
            if let Some(copied) = self.reader.copy_growing(region, chunk) {
                self.write_rest(region, copied, writer)?;
                region.beat();
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
        self.end_where_full(met)
    }

    /// Takes the chunks that ended threads still hold. `ended` is asked of a process and thread, and must be right: a
    /// living thread would go on writing into what is another's by then.
    pub fn reclaim(&mut self, region: &Region, mut ended: impl FnMut(u32, u32) -> bool) {
        for chunk in 0..region.chunks() {
            // Looked at first: a thread may give a chunk back unused and end, and then another, which has not put its
            // name there yet, has the chunk of one that has ended.
            let Some(owner) = region.owner(chunk) else {
                continue;
            };
            let header = region.header(chunk);
            region.beat();
            // A thread that has just taken the chunk has not filled in the header.
            if header.thread != 0 && ended(header.process, header.thread) {
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
        let counted = region.counted(&writer.counted_sites());
        self.note_grown(region, counted, writer)?;
        self.counted.remove(&region.inode());
        Ok(())
    }

    /// Notes how often sites have been counted, where that has grown.
    pub fn note_counted(&mut self, regions: &[Arc<Region>], writer: &Mutex<Writer>) -> Result<()> {
        let sites = writer.lock().counted_sites();
        if sites.is_empty() {
            return Ok(());
        }
        for region in regions {
            let counted = region.counted(&sites);
            self.note_grown(region, counted, &mut writer.lock())?;
        }
        Ok(())
    }

    fn note_grown(
        &mut self,
        region: &Region,
        mut counted: Vec<(u32, u64)>,
        writer: &mut Writer,
    ) -> Result<()> {
        if counted.is_empty() || self.stopped.is_some() {
            return Ok(());
        }
        let known = self.counted.entry(region.inode()).or_default();
        // What a process does to its counters must not matter.
        counted.retain(|(site, calls)| known.get(site).is_none_or(|known| calls > known));
        if counted.is_empty() {
            return Ok(());
        }
        known.extend(counted.iter().copied());
        let noted = writer.note(&Note::Counted {
            counter: counter(),
            memory: region.inode(),
            calls: counted,
        });
        self.weigh(writer);
        self.end_where_full(noted)
    }

    /// Writes at most `most` chunks. The thread that was last this time is last next time.
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
            region.free(chunk, used);
            self.subscription.freed(region, chunk);
            // Threads that wait must not take a long round for the tool's end.
            region.beat();
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
        let written = match &self.stopped {
            Some(_) => None,
            None => Some(writer.rest(self.reader.bytes(&copied), copied.state, &mut cursor)),
        };
        match written {
            None => self.totals.given_up += unwritten(&self.reader),
            Some(Ok(chunk @ Chunk::Written { .. })) => self.count(chunk, writer),
            Some(Ok(Chunk::Empty | Chunk::Repeated)) => {}
            Some(Ok(Chunk::Unfinished)) => return Ok(false),
            Some(Err(error)) if Writer::is_full(&error) => {
                self.totals.given_up += unwritten(&self.reader);
                self.stopped = Some(ends_here(&error));
            }
            Some(Err(error)) => return Err(error),
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
        if self.stopped.is_some() {
            return Ok(());
        }
        match writer.rest(chunk, ChunkPhase::Settled, &mut ChunkCursor::default()) {
            Ok(chunk) => {
                self.count(chunk, writer);
                Ok(())
            }
            Err(error) => self.end_where_full(Err(error)),
        }
    }

    fn count(&mut self, chunk: Chunk, writer: &Writer) {
        if let Chunk::Written {
            events,
            holes,
            damage,
            short,
        } = chunk
        {
            self.totals.events += events;
            self.totals.holes += holes;
            self.totals.damage += damage;
            self.totals.short += short;
            self.weigh(writer);
        }
    }

    /// Kernel events are recorded again, after a pause since then.
    pub fn resume_kernel_events(&mut self, since: u64, writer: &mut Writer) -> Result<()> {
        self.succession = Succession::default();
        let notes = writer.kernel_events_resumed(since);
        self.end_where_full(notes)
    }

    /// Writes events of a processor. `processes` are those that are traced.
    pub fn system(
        &mut self,
        processor: u32,
        update: Update,
        processes: &HashSet<u32>,
        writer: &mut Writer,
    ) -> Result<()> {
        if let Update::Records(records) = &update {
            for record in *records {
                let missed = self.succession.is_broken_by(processor, &record.event);
                self.totals.kernel_events_missed += u64::from(missed);
                self.meet(record, processes, writer)?;
            }
        }
        match update {
            Update::Function(address, name) => {
                let name = name.to_owned();
                let noted = writer.note(&Note::KernelFunction { address, name });
                self.end_where_full(noted)
            }
            Update::Lost(events) => {
                self.totals.kernel_events_lost += events;
                let lost = KernelEvent::Lost { events };
                self.succession.is_broken_by(processor, &lost);
                let written = writer.kernel_events_lost(processor, events);
                self.end_where_full(written)
            }
            Update::Records(records) if self.stopped.is_some() => {
                self.totals.given_up += records.len() as u64;
                Ok(())
            }
            Update::Records(records) => {
                self.totals.system += records.len() as u64;
                let written = writer.system(processor, records);
                self.weigh(writer);
                self.end_where_full(written)
            }
        }
    }

    /// Notes a task of another process when it is first met.
    fn meet_other(&mut self, clock: u64, task: &Task, writer: &mut Writer) -> Result<()> {
        if task.thread == 0 || !self.others.insert(task.thread) {
            return Ok(());
        }
        let status = nopal_process::status(task.thread as i32);
        let process = status.map_or(0, |status| status.process as u32);
        let other = Note::Other {
            process,
            thread: task.thread,
            begin: clock,
            name: String::from_utf8_lossy(task.name()).into_owned(),
        };
        let notes = [Some(other), task_note(process, task.thread)];
        let mut notes = notes.iter().flatten();
        let noted = notes.try_for_each(|note| writer.note(note));
        self.end_where_full(noted)
    }

    /// Notes the name of a thread of a traced process when it first leaves a processor.
    fn meet(
        &mut self,
        record: &KernelRecord,
        processes: &HashSet<u32>,
        writer: &mut Writer,
    ) -> Result<()> {
        let (process, thread) = match record.event {
            KernelEvent::Switch {
                process, previous, ..
            } => (process, previous.thread),
            KernelEvent::Out {
                process, thread, ..
            } => (process, thread),
            _ => return Ok(()),
        };
        let is_forked =
            self.naming.forked.contains(&process) && !self.naming.in_namespaces.contains(&process);
        let is_ours = processes.contains(&process) || is_forked;
        if let KernelEvent::Switch { previous, .. } = &record.event
            && !is_ours
        {
            return self.meet_other(record.clock, previous, writer);
        }
        if !is_ours || !self.met.insert((process, thread)) {
            return Ok(());
        }
        let name = nopal_process::thread_name(process as i32, thread as i32).unwrap_or_default();
        let noted = writer.note(&Note::Thread {
            process,
            thread,
            begin: record.clock,
            name,
            kernel: false,
        });
        self.end_where_full(noted)?;
        let noted = task_note(process, thread).map_or(Ok(()), |note| writer.note(&note));
        self.end_where_full(noted)
    }

    /// Writes what has been taken of processors.
    pub fn flush_kernel_events(&mut self, writer: &mut Writer) -> Result<()> {
        let written = writer.flush_kernel_events();
        self.weigh(writer);
        self.end_where_full(written)
    }

    /// Ends the recording where the trace has grown to its limit.
    fn weigh(&mut self, writer: &Writer) {
        self.totals.bytes = writer.bytes();
        let reached = self
            .limit
            .filter(|limit| self.totals.bytes >= limit.bytes());
        if let Some(limit) = reached {
            let reason = match limit {
                Limit::Asked(_) => "the trace has grown to its limit (--max-size)",
                Limit::Disk(_) => {
                    "the trace has grown to half of what was free on the disk, where it ends (--max-size sets another limit)"
                }
            };
            self.stopped.get_or_insert_with(|| reason.into());
        }
    }

    fn end_where_full(&mut self, written: Result<()>) -> Result<()> {
        match written {
            Err(error) if Writer::is_full(&error) => {
                self.stopped.get_or_insert_with(|| ends_here(&error));
                Ok(())
            }
            other => other,
        }
    }

    /// The flight recorder keeps a quarter of the chunks free, at the cost of the oldest, of which it gives up so many
    /// at most. Returns how many.
    pub fn give_up(&mut self, region: &Region, most: usize, writer: &mut Writer) -> Result<usize> {
        let mut full: Vec<(u64, usize)> = Vec::new();
        let mut taken = 0;
        for chunk in 0..region.chunks() {
            match region.chunk_state(chunk) {
                CHUNK_FULL => full.push((region.header(chunk).clock_begin, chunk)),
                CHUNK_OWNED => {}
                _ => continue,
            }
            taken += 1;
        }
        let kept_free = (region.in_use() / 4).max(1);
        let missing = (taken + kept_free).saturating_sub(region.in_use());
        full.sort_unstable();
        full.truncate(missing.min(most));
        for (_, chunk) in &full {
            self.subscription
                .full(region, *chunk, ChunkPhase::Settled, writer)?;
            let copied = self.reader.copy(region, *chunk, ChunkPhase::Settled);
            let records = &self.reader.words(&copied)[size_of::<ChunkHeader>() / 8..];
            let events = count_events(records);
            self.totals.given_up += events;
            self.totals.dropped += events;
            let header = region.header(*chunk);
            let open_calls = self.open_calls.entry(copied.name.0).or_default();
            open_calls.pass(&header, records, events);
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

    /// What is lost: in regions, and of what had been recorded.
    pub fn lost(&self, in_regions: Lost) -> Note {
        let Totals {
            given_up, dropped, ..
        } = self.totals;
        let mut reasons = in_regions.reasons();
        let own = [
            (losses::DROPPED, dropped),
            (losses::AFTER_END, given_up - dropped),
        ];
        let own = own.into_iter().filter(|(_, events)| *events > 0);
        reasons.extend(own.map(|(name, events)| (name.to_owned(), events)));
        Note::Lost {
            process: 0,
            events: in_regions.all() + given_up,
            reasons,
        }
    }

    /// Forgets the open calls of threads that have no records any more.
    pub fn forget_open_calls(&mut self, regions: &[Arc<Region>]) {
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

fn ends_here(error: &anyhow::Error) -> String {
    let why = nopal_symbols::without_numbers(&format!("{error:#}"));
    format!("{why}: the trace ends here, the program continues")
}

/// The threads that hold a chunk.
fn owners(region: &Region) -> HashSet<ThreadKey> {
    (0..region.chunks())
        .filter(|chunk| region.chunk_state(*chunk) == CHUNK_OWNED)
        .map(|chunk| name_of(region, chunk).0)
        .collect()
}

/// Calls, returns and markers in records that are not written out. Passes over words that were not stored, and stops where
/// records make no sense.
fn count_events(words: &[u64]) -> u64 {
    let mut records = Cursor::new(words);
    let mut events = 0;
    loop {
        match (records.take(0), records.rest()) {
            (Some(record), _) => {
                events += u64::from(!matches!(record.event, Event::Resync { .. } | Event::Hole));
            }
            (None, [word, ..]) if !Word(*word).is_written() => records.skip(1),
            (None, _) => return events,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(kind: u32, number: u32) -> u64 {
        match kind {
            KIND_EXTENDED => Word::extended(number, 0).0,
            _ => Word::new(kind, number, 0, 0).0,
        }
    }

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
            file.write_all_at(&calls.to_le_bytes(), at).unwrap();
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
        let writer = Mutex::new(Writer::create(&trace, Session::default()).unwrap());
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
        collector.limit = Some(Limit::Asked(writer.lock().bytes() + 1));
        collector.note_counted(&regions, &writer).unwrap();
        assert_eq!(noted(), ["[[1,10]]", "[[1,11]]"]);
        assert!(collector.stopped.as_ref().unwrap().contains("--max-size"));
        count(1, 12);
        collector.finish(&regions[0], &mut writer.lock()).unwrap();
        assert_eq!(noted().len(), 2);
    }

    #[test]
    fn kernel_events_count_for_the_limit() {
        use nopal_trace::Session;

        let scratch = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(&scratch.path().join("trace"), Session::default()).unwrap();
        let mut collector = Collector::new(Keep::All, Some(Limit::Asked(writer.bytes() + 1)));
        let record = KernelRecord {
            clock: 1,
            event: KernelEvent::In {
                process: 7,
                thread: 7,
            },
        };
        for _ in 0..3 {
            let update = Update::Records(&[record]);
            collector
                .system(0, update, &HashSet::new(), &mut writer)
                .unwrap();
            collector.flush_kernel_events(&mut writer).unwrap();
        }
        assert_eq!([collector.totals.system, collector.totals.given_up], [1, 2]);
        assert!(collector.stopped.unwrap().contains("--max-size"));
        assert_eq!(collector.totals.bytes, writer.bytes());
    }

    #[test]
    fn events_of_every_length_are_counted() {
        let likely_call = first(KIND_ENTRY, 7);
        let fixed = EVENT_DEFINED | 3 << EVENT_WORDS_SHIFT;
        let variable = (EVENT_DEFINED + 1) | (EVENT_VARIABLE << EVENT_WORDS_SHIFT);
        let records = [
            &[first(KIND_EXTENDED, EVENT_RESYNC), 1, 2, 3, 4, 5][..],
            &[first(KIND_ENTRY_ARGS, 8), 1, 2, 3, 4, 5, likely_call],
            &[first(KIND_EXTENDED, fixed), 1, likely_call, likely_call],
            &[
                first(KIND_EXTENDED, variable),
                1,
                3,
                likely_call,
                likely_call,
            ],
            &[first(KIND_EXIT_RESULT, 8), likely_call, first(KIND_HOLE, 0)],
            &[likely_call],
        ];
        assert_eq!(count_events(&records.concat()), 5);
        // A record whose length is unknown.
        let unknown = [
            likely_call,
            first(KIND_EXTENDED, EVENT_DEFINED),
            likely_call,
        ];
        assert_eq!(count_events(&unknown), 1);
    }
}
