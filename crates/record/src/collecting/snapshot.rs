//! Snapshots: what the flight recorder holds at a moment, or held of a while, written into a trace of its own.
//!
//! The records are copied at once; a thread writes the copy while recording goes on.

use crate::collecting::chunk_reader::{Begin, ChunkReader, Copied, name_of};
use crate::collecting::collect::Collector;
use crate::collecting::drain::Shared;
use crate::collecting::naming::thread_notes;
use crate::collecting::notes::{counter, snapshot as clock};
use crate::collecting::open_calls::OpenCalls;
use crate::collecting::totals::{Totals, count_events};
use crate::memory::region::{Lost, Region};
use anyhow::Result;
use nopal_abi::*;
use nopal_analysis::text::{duration, several};
use nopal_analysis::tracers::Live;
use nopal_trace::{Chunk, ChunkCursor, ChunkPhase, Note, Seed, ThreadKey, losses, snapshot_name};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use zerocopy::{FromBytes, IntoBytes};

/// Snapshots of one session, at most, besides those of slow cases.
const MOST: usize = 16;
/// Copies of the buffer that are in memory at the same time, and are written.
const MOST_WRITING: usize = 2;

/// The results of the snapshots of a session.
#[derive(Default)]
pub struct Snapshots {
    /// The reason of a snapshot that a command requests.
    pub asked: Vec<String>,
    /// The one with number 1 first.
    taken: Vec<Snapshot>,
    /// Snapshots that were not taken.
    passed_over: u64,
}

struct Snapshot {
    why: String,
    slow: Option<Slow>,
    directory: PathBuf,
    written: Written,
}

enum Written {
    Not,
    Whole {
        events: u64,
        bytes: u64,
    },
    Failed(String),
    /// Slower cases took its place.
    Removed,
    /// What it should have had was given up before.
    GivenUp,
}

/// A snapshot that is to be written.
pub struct Wanted {
    pub why: String,
    /// The time of which it has the records, by the counter.
    pub window: RangeInclusive<u64>,
    pub slow: Option<Slow>,
}

/// A case that is among the slowest of its minute.
#[derive(Clone)]
pub struct Slow {
    pub tracer: String,
    pub live: Live,
    /// In which it ended.
    pub thread: ThreadKey,
    /// Of the tracer's cases, this one.
    pub id: u64,
    pub ns: u64,
}

impl Snapshots {
    /// How many are written, and how many could not be.
    pub fn numbers(&self) -> (usize, u64) {
        let is_whole = |one: &&Snapshot| matches!(one.written, Written::Whole { .. });
        let is_failed =
            |one: &&Snapshot| matches!(one.written, Written::Failed(_) | Written::GivenUp);
        let failed = self.taken.iter().filter(is_failed).count() as u64;
        let whole = self.taken.iter().filter(is_whole).count();
        (whole, self.passed_over + failed)
    }

    /// For people: a line each, but for those of slow cases, of which each tracer has one.
    pub fn describe(&self) -> Vec<String> {
        let taken = (1..).zip(&self.taken).filter_map(|(number, one)| {
            let name = snapshot_name(number);
            match &one.written {
                Written::Failed(error) => Some(format!("{name}: incomplete: {error}")),
                _ if one.slow.is_some() => None,
                Written::Not => Some(format!("{name}: being written, {}", one.why)),
                Written::Whole { events, .. } => Some(format!(
                    "{name}: {}, {}",
                    several(*events, "event", "events"),
                    one.why
                )),
                Written::Removed | Written::GivenUp => None,
            }
        });
        let more = (self.passed_over > 0).then(|| {
            format!(
                "{} not taken: at most {MOST} are written, {MOST_WRITING} at a time, and only within --max-size",
                several(
                    self.passed_over,
                    "more snapshot was",
                    "more snapshots were"
                )
            )
        });
        taken.chain(self.describe_slow()).chain(more).collect()
    }

    fn describe_slow(&self) -> Vec<String> {
        let slow = (1..).zip(&self.taken);
        let slow = slow.filter_map(|(number, one)| Some((number, one, one.slow.as_ref()?)));
        let slow: Vec<(u32, &Snapshot, &Slow)> = slow.collect();
        let tracers: BTreeSet<&str> = slow.iter().map(|(.., slow)| &*slow.tracer).collect();
        let describe = |tracer: &str| {
            let of_tracer = slow.iter().filter(|(.., slow)| slow.tracer == tracer);
            let is_whole = |one: &Snapshot| matches!(one.written, Written::Whole { .. });
            let whole = of_tracer.clone().filter(|(_, one, _)| is_whole(one));
            let count = whole.clone().count() as u64;
            let kept = whole.max_by_key(|(.., slow)| slow.ns).map(|slowest| {
                format!(
                    "{} of the slowest cases of {tracer}: the slowest took {} ({})",
                    several(count, "snapshot", "snapshots"),
                    duration(slowest.2.ns),
                    snapshot_name(slowest.0)
                )
            });
            let is_given_up = |one: &Snapshot| matches!(one.written, Written::GivenUp);
            let given_up = of_tracer.filter(|(_, one, _)| is_given_up(one)).count() as u64;
            let given_up = (given_up > 0).then(|| {
                let cases = several(given_up, "slow case", "slow cases");
                format!(
                    "{cases} of {tracer} not kept: a larger --buffer would have held the records"
                )
            });
            kept.into_iter().chain(given_up)
        };
        tracers.into_iter().flat_map(describe).collect()
    }

    fn bytes(&self) -> u64 {
        let bytes = |one: &Snapshot| match one.written {
            Written::Whole { bytes, .. } => bytes,
            _ => 0,
        };
        self.taken.iter().map(bytes).sum()
    }

    /// Removes the snapshot of a slow case, at once or when it is written.
    pub fn remove(&mut self, live: &Live, id: u64) {
        let is_meant = |slow: &Slow| slow.live == *live && slow.id == id;
        let mut taken = self.taken.iter_mut();
        let Some(one) = taken.find(|one| one.slow.as_ref().is_some_and(is_meant)) else {
            return;
        };
        if let Written::Whole { .. } = one.written {
            one.remove();
        }
        one.written = Written::Removed;
    }

    fn done(&mut self, index: usize, written: Written) {
        let one = &mut self.taken[index];
        match one.written {
            Written::Removed => one.remove(),
            _ => one.written = written,
        }
    }
}

impl Snapshot {
    /// What cannot be removed stays, a snapshot more than was asked for.
    fn remove(&self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// All that is held of a session at a moment.
struct Held {
    chunks: Vec<Copy>,
    /// The calls of each thread that are open where its chunks begin.
    open_calls: HashMap<ThreadKey, OpenCalls>,
    names: Vec<Note>,
    /// When it was copied.
    counter: u64,
    totals: Totals,
    lost: Lost,
    /// Events that were held and are not any more: see [`Held::pass`].
    passed: u64,
}

/// The used part of a chunk, in words.
struct Copy {
    thread: ThreadKey,
    /// The clock of its first record, and of the first one in its thread's next chunk.
    begin: u64,
    end: u64,
    words: Vec<u64>,
    state: ChunkPhase,
}

impl Copy {
    fn of(reader: &ChunkReader, copied: &Copied) -> Copy {
        let words = reader.words(copied).to_vec();
        let header = ChunkHeader::read_from_prefix(words.as_bytes());
        Copy {
            thread: copied.name.0,
            begin: header.map_or(0, |(header, _)| header.clock_begin),
            end: u64::MAX,
            words,
            state: copied.state,
        }
    }
}

impl Held {
    /// Whether it has the end of a case, or of what else is wanted.
    fn has(&self, wanted: &Wanted) -> bool {
        let end = *wanted.window.end();
        wanted.slow.as_ref().is_none_or(|slow| {
            let chunks = self.chunks.iter();
            let mut chunks = chunks.filter(|copy| copy.thread == slow.thread);
            chunks.any(|copy| (copy.begin..=copy.end).contains(&end))
        })
    }

    /// Without the chunks that are over at a moment.
    fn pass(&mut self, moment: u64) {
        let chunks = std::mem::take(&mut self.chunks).into_iter();
        let (over, rest): (Vec<Copy>, Vec<Copy>) = chunks.partition(|copy| copy.end <= moment);
        self.chunks = rest;
        for copy in over {
            let Ok((header, _)) = ChunkHeader::read_from_prefix(copy.words.as_bytes()) else {
                continue;
            };
            let records = copy.words.get(size_of::<ChunkHeader>() / 8..);
            let records = records.unwrap_or_default();
            let events = count_events(records);
            self.passed += events;
            let open_calls = self.open_calls.entry(copy.thread).or_default();
            open_calls.pass(&header, records, events);
        }
    }

    /// Writes what begins until `end`.
    fn write(&self, seed: Seed, end: u64, name: &str, why: &str) -> Result<Written> {
        let mut writer = seed.begin()?;
        let given_up = self.open_calls.iter();
        let given_up = given_up.map(|(thread, calls)| (*thread, calls.given_up()));
        writer.given_up(&given_up.collect::<Vec<_>>());
        let mut events = 0;
        for copy in self.chunks.iter().filter(|copy| copy.begin <= end) {
            let mut words = copy.words.clone();
            let bytes = words.as_mut_bytes();
            if let Chunk::Written { events: some, .. } =
                writer.rest(bytes, copy.state, &mut ChunkCursor::default())?
            {
                events += some;
            }
        }
        let open_calls = self.open_calls.iter();
        for note in open_calls.filter_map(|(thread, calls)| calls.note(*thread)) {
            writer.note(&note)?;
        }
        for note in &self.names {
            writer.note(note)?;
        }
        let mut lost = self.totals.lost(self.lost);
        if let Note::Lost {
            events, reasons, ..
        } = &mut lost
            && self.passed > 0
        {
            *events += self.passed;
            reasons.insert(losses::EARLIER.to_owned(), self.passed);
        }
        let counter = end.min(self.counter);
        for note in [
            clock(),
            Note::Text {
                counter,
                text: format!("{name}: {why}"),
            },
            Note::End {
                counter,
                complete: matches!(lost, Note::Lost { events: 0, .. }),
                why: format!("a snapshot of the flight recorder: {why}"),
            },
            lost,
        ] {
            writer.note(&note)?;
        }
        writer.sync_metadata()?;
        Ok(Written::Whole {
            events,
            bytes: writer.bytes(),
        })
    }
}

impl Collector {
    /// Takes what is held for the next snapshot. What cannot be written ends it, and not the session.
    pub fn snapshot(&mut self, shared: &Shared, why: &str) -> Result<()> {
        let is_one_more = {
            let snapshots = shared.snapshots();
            let others = snapshots.taken.iter().filter(|one| one.slow.is_none());
            others.count() < MOST
        };
        if !is_one_more || !self.may_write_snapshot() {
            shared.snapshots().passed_over += 1;
            return Ok(());
        }
        let wanted = Wanted {
            why: why.to_owned(),
            window: 0..=u64::MAX,
            slow: None,
        };
        self.write_snapshots(shared, vec![wanted])
    }

    pub fn may_write_snapshot(&mut self) -> bool {
        self.writing.retain(|thread| !thread.is_finished());
        self.writing.len() < MOST_WRITING
    }

    /// Copies what is held, and has it written.
    pub fn write_snapshots(&mut self, shared: &Shared, mut wanted: Vec<Wanted>) -> Result<()> {
        wanted.sort_by_key(|one| *one.window.start());
        let mut begun = Vec::new();
        for one in wanted {
            let number = shared.snapshots().taken.len() as u32 + 1;
            let seed = shared.writer.lock().seed(number)?;
            if let Some(index) = self.next_snapshot(&mut shared.snapshots(), &one, &seed) {
                begun.push((index, seed, one));
            }
        }
        if begun.is_empty() {
            return Ok(());
        }
        let mut held = self.held(shared)?;
        let numbers: Vec<usize> = begun.iter().map(|(index, ..)| *index).collect();
        let snapshots = shared.for_snapshots();
        let theirs = snapshots.clone();
        let thread = std::thread::Builder::new().spawn(move || {
            for (index, seed, one) in begun {
                held.pass(*one.window.start());
                let name = snapshot_name(index as u32 + 1);
                let written = match held.has(&one) {
                    true => held.write(seed, *one.window.end(), &name, &one.why),
                    false => Ok(Written::GivenUp),
                };
                let written = written.unwrap_or_else(|error| Written::Failed(format!("{error:#}")));
                theirs.lock().done(index, written);
            }
        });
        match thread {
            Ok(thread) => self.writing.push(thread),
            Err(error) => {
                for index in numbers {
                    let failed = Written::Failed(error.to_string());
                    snapshots.lock().done(index, failed);
                }
            }
        }
        Ok(())
    }

    /// The place of a new one, if there is room for it.
    fn next_snapshot(
        &self,
        snapshots: &mut Snapshots,
        wanted: &Wanted,
        seed: &Seed,
    ) -> Option<usize> {
        let limit = self.end.limit;
        if limit.is_some_and(|limit| snapshots.bytes() >= limit.bytes()) {
            snapshots.passed_over += 1;
            return None;
        }
        snapshots.taken.push(Snapshot {
            why: wanted.why.clone(),
            slow: wanted.slow.clone(),
            directory: seed.directory().to_owned(),
            written: Written::Not,
        });
        Some(snapshots.taken.len() - 1)
    }

    /// Waits until all snapshots are written.
    pub fn finish_snapshots(&mut self) {
        // One that failed has said so.
        let wait = |thread: JoinHandle<()>| drop(thread.join());
        self.writing.drain(..).for_each(wait);
    }

    fn held(&mut self, shared: &Shared) -> Result<Held> {
        let regions = shared.regions();
        self.note_counted(&regions, &shared.writer)?;
        // Before copying gives up more.
        let (totals, lost) = (self.totals, shared.counts().lost);
        let open_calls = self.open_calls.clone();
        let counter = counter();
        let (mut chunks, names) = self.copy_all(shared, &regions)?;
        let mut next = HashMap::new();
        for copy in chunks.iter_mut().rev() {
            let end = next.insert(copy.thread, copy.begin);
            copy.end = end.unwrap_or(u64::MAX);
        }
        Ok(Held {
            chunks,
            open_calls,
            names,
            counter,
            totals,
            lost,
            passed: 0,
        })
    }

    /// All that is recorded, each thread's in order, and the threads' names.
    fn copy_all(
        &mut self,
        shared: &Shared,
        regions: &[Arc<Region>],
    ) -> Result<(Vec<Copy>, Vec<Note>)> {
        // First what threads are filling, so that what they hand over meanwhile is in one of the two.
        let mut reader = ChunkReader::new(Begin::Any);
        let mut known = HashSet::new();
        let mut growing = Vec::new();
        for region in regions {
            for chunk in 0..region.chunks() {
                if region.chunk_state(chunk) == CHUNK_OWNED
                    && let Some(copied) = reader.copy_growing(region, chunk)
                {
                    known.insert(copied.name);
                    growing.push(Copy::of(&reader, &copied));
                }
            }
        }
        let mut full = Vec::new();
        for (at, region) in regions.iter().enumerate() {
            for chunk in 0..region.chunks() {
                let is_full = region.chunk_state(chunk) == CHUNK_FULL;
                let (name, begin) = (name_of(region, chunk), region.header(chunk).clock_begin);
                if is_full && !known.contains(&name) {
                    full.push((begin, at, chunk, name.0));
                }
            }
        }
        full.sort_unstable();
        let threads = known.iter().map(|(key, _)| *key);
        let threads: HashSet<ThreadKey> = threads.chain(full.iter().map(|one| one.3)).collect();
        let mut copies = Vec::with_capacity(full.len() + growing.len());
        let mut copied = vec![0; regions.len()];
        for (count, (_, at, chunk, _)) in full.into_iter().enumerate() {
            let one = reader.copy(&regions[at], chunk, ChunkPhase::Settled);
            copies.push(Copy::of(&reader, &one));
            copied[at] += 1;
            // The oldest of those that are copied make room for what threads record meanwhile.
            if count % 16 == 15 {
                self.heartbeat.beat();
                for (region, copied) in regions.iter().zip(&mut copied) {
                    *copied -= self.give_up(region, *copied, &mut shared.writer.lock())?;
                }
            }
        }
        copies.append(&mut growing);
        let main = regions.first();
        let named = threads.into_iter().flat_map(|key| {
            let region = regions
                .iter()
                .find(|one| one.process() as u32 == key.process);
            region
                .or(main)
                .into_iter()
                .flat_map(move |region| thread_notes(region, key))
        });
        Ok((copies, named.collect()))
    }
}
