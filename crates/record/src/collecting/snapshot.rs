//! Snapshots: what the flight recorder holds at a moment, or held of a while, written into a trace of its own.
//!
//! The records are copied at once; a thread writes the copy while recording goes on.

use crate::collecting::chunk_reader::{Begin, ChunkReader, Copied, name_of};
use crate::collecting::collect::Collector;
use crate::collecting::drain::Shared;
use crate::collecting::notes::{counter, snapshot as clock};
use crate::collecting::open_calls::OpenCalls;
use crate::collecting::snapshot_results::{Ended, MOST_WRITING, Slow, Snapshots};
use crate::collecting::totals::{Totals, count_events, last_clock};
use crate::collecting::trace_end::Limit;
use crate::memory::lost::Lost;
use crate::memory::region::Region;
use crate::session::watchdog::wait_for_others;
use anyhow::Result;
use nopal_abi::*;
use nopal_analysis::sort;
use nopal_beside::Mutex;
use nopal_trace::{Chunk, ChunkCursor, ChunkPhase, Note, Seed, ThreadKey, losses, snapshot_name};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::JoinHandle;
use zerocopy::{FromBytes, IntoBytes};

/// A snapshot that is to be written.
pub struct Wanted {
    pub why: String,
    /// The time of which it has the records, by the counter.
    pub window: RangeInclusive<u64>,
    pub slow: Option<Slow>,
}

/// Snapshots that are written from one copy, those whose time begins first before the others.
struct Batch {
    held: Held,
    seed: Seed,
    /// By number.
    wanted: Vec<(u32, Wanted)>,
    snapshots: Arc<Mutex<Snapshots>>,
    limit: Option<Limit>,
}

impl Batch {
    fn write(mut self) {
        if self.snapshots.lock().is_full(self.limit) {
            self.snapshots.lock().forget_missing();
        }
        if self.wanted.iter().any(|(_, one)| one.slow.is_some()) {
            self.held.find_ends();
        }
        for (number, one) in &self.wanted {
            if !self.snapshots.lock().may_write(*number, self.limit) {
                continue;
            }
            self.held.pass(*one.window.start());
            if let Some(room) = self.snapshots.lock().room(self.limit) {
                self.held.fit(room);
            }
            let ended = self.held.write(&self.seed, *number, one);
            let ended = ended.unwrap_or_else(|error| Ended::Failed(format!("{error:#}")));
            self.snapshots.lock().end(*number, ended);
            delete_removed(&self.snapshots);
        }
    }
}

/// However it ends, nobody waits for what it has not written.
impl Drop for Batch {
    fn drop(&mut self) {
        for (number, _) in &self.wanted {
            self.snapshots.lock().abandon(*number);
        }
    }
}

/// A directory that cannot be deleted stays: a snapshot more than was asked for.
fn delete_removed(snapshots: &Mutex<Snapshots>) {
    let directories = snapshots.lock().take_to_delete();
    for directory in directories {
        let _ = fs::remove_dir_all(directory);
    }
}

/// All that is held of a session at a moment.
struct Held {
    /// Each thread's in order.
    chunks: Vec<Copy>,
    /// The calls of each thread that are open where its chunks begin.
    open_calls: HashMap<ThreadKey, OpenCalls>,
    /// Until when threads are known to have lived.
    alive: Vec<Note>,
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
    sequence: u64,
    /// The clocks of its first record and, once [`Held::find_ends`] has looked, of its last one.
    begin: u64,
    end: u64,
    words: Vec<u64>,
    state: ChunkPhase,
}

impl Copy {
    fn of(reader: &ChunkReader, copied: &Copied) -> Copy {
        let words = reader.words(copied).to_vec();
        let header = ChunkHeader::read_from_prefix(words.as_bytes());
        let (thread, sequence) = copied.name;
        Copy {
            thread,
            sequence,
            begin: header.map_or(0, |(header, _)| header.clock_begin),
            end: u64::MAX,
            words,
            state: copied.state,
        }
    }

    fn records(&self) -> &[u64] {
        let records = self.words.get(size_of::<ChunkHeader>() / 8..);
        records.unwrap_or_default()
    }
}

impl Held {
    fn find_ends(&mut self) {
        for copy in &mut self.chunks {
            copy.end = last_clock(copy.records(), copy.begin);
        }
    }

    fn has(&self, thread: ThreadKey, moment: u64) -> bool {
        let mut chunks = self.chunks.iter().filter(|copy| copy.thread == thread);
        chunks.any(|copy| (copy.begin..=copy.end).contains(&moment))
    }

    /// Without the oldest chunks, so that the others have at most so many bytes.
    fn fit(&mut self, room: u64) {
        let bytes = |copy: &Copy| 8 * copy.words.len() as u64;
        if self.chunks.iter().map(bytes).sum::<u64>() <= room {
            return;
        }
        self.find_ends();
        let mut ends: Vec<(u64, u64)> = self
            .chunks
            .iter()
            .map(|copy| (copy.end, bytes(copy)))
            .collect();
        sort::by_key(&mut ends, |(end, _)| std::cmp::Reverse(*end));
        let mut sum = 0;
        let over = ends.iter().find(|(_, bytes)| {
            sum += bytes;
            sum > room
        });
        if let Some((end, _)) = over {
            self.pass(end.saturating_add(1));
        }
    }

    /// Without the chunks that were over before a moment.
    fn pass(&mut self, moment: u64) {
        let chunks = std::mem::take(&mut self.chunks).into_iter();
        let (over, rest): (Vec<Copy>, Vec<Copy>) = chunks.partition(|copy| copy.end < moment);
        self.chunks = rest;
        for copy in over {
            let Ok((header, _)) = ChunkHeader::read_from_prefix(copy.words.as_bytes()) else {
                continue;
            };
            let events = count_events(copy.records());
            self.passed += events;
            let open_calls = self.open_calls.entry(copy.thread).or_default();
            open_calls.pass(&header, copy.records(), events);
        }
    }

    /// Writes what begins before its end.
    fn write(&self, seed: &Seed, number: u32, wanted: &Wanted) -> Result<Ended> {
        let (begin, end) = (*wanted.window.start(), *wanted.window.end());
        let mut why = wanted.why.clone();
        if let Some(slow) = &wanted.slow {
            if !self.has(slow.threads[1], end) {
                return Ok(Ended::GivenUp);
            }
            if !self.has(slow.threads[0], begin) {
                why.push_str("; the records of its begin had been given up");
            }
        }
        let mut writer = seed.begin(number)?;
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
        for note in &self.alive {
            let mut note = note.clone();
            if let Note::Alive { counter, .. } = &mut note {
                *counter = (*counter).min(end);
            }
            writer.note(&note)?;
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
                text: format!("{}: {why}", snapshot_name(number)),
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
        Ok(Ended::Whole {
            events,
            bytes: writer.bytes(),
        })
    }
}

impl Collector {
    /// Takes what is held for the next snapshot. What cannot be written ends it, and not the session.
    pub fn snapshot(&mut self, shared: &Shared, why: &str) -> Result<()> {
        let may_write = self.writing() < MOST_WRITING;
        let mut snapshots = shared.snapshots();
        if !may_write || !snapshots.may_have_more() || snapshots.is_full(self.end.limit) {
            snapshots.pass_over();
            return Ok(());
        }
        drop(snapshots);
        let wanted = Wanted {
            why: why.to_owned(),
            window: 0..=u64::MAX,
            slow: None,
        };
        self.write_snapshots(shared, vec![wanted])
    }

    /// Whether slow cases may be copied: not while all copies are that there may be but one, which is for triggers.
    pub fn may_write_slow(&mut self) -> bool {
        self.writing() < MOST_WRITING - 1
    }

    fn writing(&mut self) -> usize {
        self.writing.retain(|thread| !thread.is_finished());
        self.writing.len()
    }

    /// Copies what is held, and has it written.
    pub fn write_snapshots(&mut self, shared: &Shared, mut wanted: Vec<Wanted>) -> Result<()> {
        sort::by_key(&mut wanted, |one| *one.window.start());
        let held = self.held(shared)?;
        // Has the names of all threads that are held.
        let seed = shared.writer.lock().seed()?;
        let mut snapshots = shared.snapshots();
        let begin = |one: Wanted| {
            let slow = one.slow.as_ref();
            let directory = |number| seed.directory(number);
            (snapshots.begin(&one.why, slow, directory), one)
        };
        let wanted = wanted.into_iter().map(begin).collect();
        drop(snapshots);
        let batch = Batch {
            held,
            seed,
            wanted,
            snapshots: shared.for_snapshots(),
            limit: self.end.limit,
        };
        // Where there is no thread for it, it says so as it is dropped.
        let thread = std::thread::Builder::new().spawn(move || batch.write());
        self.writing.extend(thread);
        Ok(())
    }

    /// Waits until all snapshots are written.
    pub fn finish_snapshots(&mut self, shared: &Shared) {
        // One that failed has said so.
        let wait = |thread: JoinHandle<()>| drop(thread.join());
        wait_for_others(|| self.writing.drain(..).for_each(wait));
        delete_removed(&shared.for_snapshots());
    }

    fn held(&mut self, shared: &Shared) -> Result<Held> {
        let regions = shared.regions();
        self.note_counted(&regions, &shared.writer)?;
        // Before copying gives up more.
        let (totals, lost) = (self.totals, shared.counts().lost);
        let open_calls = self.open_calls.clone();
        shared.look_at_threads(None);
        let alive = shared.alive(self);
        let counter = counter();
        let chunks = self.copy_all(shared, &regions)?;
        let threads: HashSet<ThreadKey> = chunks.iter().map(|copy| copy.thread).collect();
        let alive = alive
            .into_iter()
            .filter(|(thread, _)| threads.contains(thread));
        let alive = alive.map(|(_, note)| note).collect();
        Ok(Held {
            chunks,
            open_calls,
            alive,
            counter,
            totals,
            lost,
            passed: 0,
        })
    }

    /// All that is recorded, each thread's in order. Notes the threads' names.
    fn copy_all(&mut self, shared: &Shared, regions: &[Arc<Region>]) -> Result<Vec<Copy>> {
        // First what threads are filling, so that what they hand over meanwhile is in one of the two.
        let mut reader = ChunkReader::new(Begin::Any);
        let mut known = HashSet::new();
        let mut recording = HashSet::new();
        let mut growing = Vec::new();
        for (at, region) in regions.iter().enumerate() {
            for chunk in 0..region.chunks() {
                if region.chunk_state(chunk) == CHUNK_OWNED
                    && let Some(copied) = reader.copy_growing(region, chunk)
                {
                    known.insert(copied.name);
                    recording.insert((copied.name.0, at));
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
        // A thread that has ended is not asked for its name again: another one may have its id.
        let handed_over = full.iter().map(|(_, at, _, key)| (*key, *at));
        recording.extend(handed_over.filter(|(key, _)| !self.naming.knows(*key)));
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
        // A thread may have handed a chunk over, and another one after it, between the two looks.
        sort::by_key(&mut copies, |copy| (copy.begin, copy.sequence));
        // The first of a process's threads tells when that began.
        let mut recording: Vec<(ThreadKey, usize)> = recording.into_iter().collect();
        sort::by_key(&mut recording, |(key, _)| key.begin);
        for (key, at) in recording {
            self.heartbeat.beat();
            let noted = (self.naming).note(&regions[at], &mut shared.writer.lock(), key);
            self.end.unless_full(noted)?;
        }
        Ok(copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(thread: u32) -> ThreadKey {
        ThreadKey {
            process: 1,
            thread,
            begin: 1,
        }
    }

    /// A chunk with an entry at each of these clocks.
    fn chunk(thread: u32, clocks: &[u64]) -> Copy {
        let header = ChunkHeader {
            process: 1,
            thread,
            thread_begin: 1,
            clock_begin: clocks[0],
            ..ChunkHeader::default()
        };
        let mut words = vec![0; size_of::<ChunkHeader>() / 8];
        words.as_mut_bytes().copy_from_slice(header.as_bytes());
        words.extend(
            clocks
                .iter()
                .map(|clock| Word::new(KIND_ENTRY, 1, 8, *clock).0),
        );
        // Room that was not used.
        words.extend([0; 3]);
        Copy {
            thread: key(thread),
            sequence: 0,
            begin: clocks[0],
            end: u64::MAX,
            words,
            state: ChunkPhase::Settled,
        }
    }

    fn threads(held: &Held) -> Vec<u32> {
        held.chunks.iter().map(|copy| copy.thread.thread).collect()
    }

    fn held(chunks: Vec<Copy>) -> Held {
        Held {
            chunks,
            open_calls: HashMap::new(),
            alive: Vec::new(),
            counter: 1000,
            totals: Totals::default(),
            lost: Lost::default(),
            passed: 0,
        }
    }

    #[test]
    fn what_is_over_first_is_passed_over_where_there_is_too_little_room() {
        let chunks = || {
            vec![
                chunk(1, &[100, 200]),
                chunk(2, &[150, 300]),
                chunk(3, &[250]),
            ]
        };
        let bytes: Vec<u64> = chunks()
            .iter()
            .map(|copy| 8 * copy.words.len() as u64)
            .collect();
        for (room, left, passed) in [
            (bytes.iter().sum(), vec![1, 2, 3], 0),
            (bytes.iter().sum::<u64>() - 1, vec![2, 3], 2),
            (bytes[1] + bytes[2], vec![2, 3], 2),
            (bytes[1] + bytes[2] - 1, vec![2], 3),
            (0, vec![], 5),
        ] {
            let mut held = held(chunks());
            held.fit(room);
            assert_eq!((threads(&held), held.passed), (left, passed), "{room}");
        }
    }

    /// The last chunk of each is not followed by another one: what it has tells when it was over.
    #[test]
    fn what_threads_recorded_before_a_case_is_passed_over() {
        let mut held = held(vec![
            chunk(1, &[100, 200]),
            chunk(2, &[150, 300]),
            chunk(3, &[250]),
        ]);
        held.pass(0);
        assert_eq!(threads(&held), [1, 2, 3]);
        held.find_ends();
        assert!(held.has(key(1), 200) && !held.has(key(1), 201) && !held.has(key(2), 149));
        held.pass(200);
        assert_eq!((threads(&held), held.passed), (vec![1, 2, 3], 0));
        held.pass(260);
        assert_eq!((threads(&held), held.passed), (vec![2], 3));
        assert!(!held.has(key(3), 250));
    }
}
