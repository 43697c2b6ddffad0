//! Snapshots: what the flight recorder holds at a moment, written into a trace of its own.
//!
//! The records are copied at once; a thread writes the copy while recording goes on.

use crate::collecting::chunk_reader::{Begin, ChunkReader, Copied, name_of};
use crate::collecting::collect::Collector;
use crate::collecting::drain::Shared;
use crate::collecting::naming::thread_notes;
use crate::collecting::notes::{counter, snapshot as clock};
use crate::memory::region::Region;
use anyhow::Result;
use nopal_abi::*;
use nopal_analysis::text::several;
use nopal_trace::{Chunk, ChunkCursor, ChunkPhase, Note, Seed, ThreadKey, snapshot_name};
use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use zerocopy::IntoBytes;

/// Snapshots of one session, at most.
const MOST: usize = 16;
/// Snapshots that are written at the same time. Each is a copy of the buffer in memory.
const MOST_WRITING: usize = 2;

/// The results of the snapshots of a session.
#[derive(Default)]
pub struct Snapshots {
    /// The reason of a snapshot that a command requests.
    pub asked: Vec<String>,
    /// Why each was taken, and what became of it.
    taken: Vec<(String, Written)>,
    /// Snapshots that were not taken.
    passed_over: u64,
}

enum Written {
    Not,
    Whole { events: u64, bytes: u64 },
    Failed(String),
}

impl Snapshots {
    /// How many are written, and how many could not be.
    pub fn numbers(&self) -> (usize, u64) {
        let is_whole = |(_, written): &&(String, Written)| matches!(written, Written::Whole { .. });
        let is_failed = |(_, written): &&(String, Written)| matches!(written, Written::Failed(_));
        let failed = self.taken.iter().filter(is_failed).count() as u64;
        let whole = self.taken.iter().filter(is_whole).count();
        (whole, self.passed_over + failed)
    }

    /// A line each, for people.
    pub fn describe(&self) -> Vec<String> {
        let taken = (1..).zip(&self.taken).map(|(number, (why, written))| {
            let name = snapshot_name(number);
            match written {
                Written::Not => format!("{name}: being written, {why}"),
                Written::Whole { events, .. } => {
                    format!("{name}: {}, {why}", several(*events, "event", "events"))
                }
                Written::Failed(error) => format!("{name}: incomplete: {error}"),
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
        taken.chain(more).collect()
    }

    fn bytes(&self) -> u64 {
        let bytes = |written: &Written| match written {
            Written::Whole { bytes, .. } => *bytes,
            _ => 0,
        };
        self.taken.iter().map(|(_, written)| bytes(written)).sum()
    }
}

/// The used part of a chunk, in words.
struct Copy {
    words: Vec<u64>,
    state: ChunkPhase,
}

impl Copy {
    fn of(reader: &ChunkReader, copied: &Copied) -> Copy {
        Copy {
            words: reader.words(copied).to_vec(),
            state: copied.state,
        }
    }
}

impl Collector {
    /// Takes what is held for the next snapshot. What cannot be written ends it, and not the session.
    pub fn snapshot(&mut self, shared: &Shared, why: &str) -> Result<()> {
        self.writing.retain(|thread| !thread.is_finished());
        let Some(index) = self.next_snapshot(&mut shared.snapshots(), why) else {
            return Ok(());
        };
        let regions = shared.regions();
        self.note_counted(&regions, &shared.writer)?;
        let lost = self.totals.lost(shared.counts().lost);
        let given_up = self.given_up();
        let at = counter();
        // Before copying gives up more.
        let mut notes = self.open_calls();
        let (copies, threads) = self.copy_all(shared, &regions)?;
        notes.extend(threads);
        notes.extend([
            clock(),
            Note::Text {
                counter: at,
                text: format!("{}: {why}", snapshot_name(index as u32 + 1)),
            },
            Note::End {
                counter: at,
                complete: matches!(lost, Note::Lost { events: 0, .. }),
                why: format!("a snapshot of the flight recorder: {why}"),
            },
        ]);
        notes.push(lost);
        let seed = shared.writer.lock().seed(index as u32 + 1);
        let snapshots = shared.for_snapshots();
        let writing = snapshots.clone();
        let thread = std::thread::Builder::new().spawn(move || {
            let written = seed.and_then(|seed| write(seed, copies, &given_up, &notes));
            let written = written.unwrap_or_else(|error| Written::Failed(format!("{error:#}")));
            snapshots.lock().taken[index].1 = written;
        });
        match thread {
            Ok(thread) => self.writing.push(thread),
            Err(error) => writing.lock().taken[index].1 = Written::Failed(error.to_string()),
        }
        Ok(())
    }

    /// The place of a new one, if there may be one.
    fn next_snapshot(&self, snapshots: &mut Snapshots, why: &str) -> Option<usize> {
        if snapshots.taken.len() == MOST
            || self.writing.len() == MOST_WRITING
            || self
                .end
                .limit
                .is_some_and(|limit| snapshots.bytes() >= limit.bytes())
        {
            snapshots.passed_over += 1;
            return None;
        }
        snapshots.taken.push((why.to_owned(), Written::Not));
        Some(snapshots.taken.len() - 1)
    }

    /// Waits until all snapshots are written.
    pub fn finish_snapshots(&mut self) {
        // One that failed has said so.
        let wait = |thread: JoinHandle<()>| drop(thread.join());
        self.writing.drain(..).for_each(wait);
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

fn write(
    seed: Seed,
    copies: Vec<Copy>,
    given_up: &[(ThreadKey, u64)],
    notes: &[Note],
) -> Result<Written> {
    let mut writer = seed.begin()?;
    writer.given_up(given_up);
    let mut events = 0;
    for mut copy in copies {
        let bytes = copy.words.as_mut_bytes();
        if let Chunk::Written { events: some, .. } =
            writer.rest(bytes, copy.state, &mut ChunkCursor::default())?
        {
            events += some;
        }
    }
    notes.iter().try_for_each(|note| writer.note(note))?;
    writer.sync_metadata()?;
    Ok(Written::Whole {
        events,
        bytes: writer.bytes(),
    })
}
