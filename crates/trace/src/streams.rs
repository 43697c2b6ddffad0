//! The stream files of threads.
//!
//! A thread keeps its file. A file is reused when its thread has ended and the new packet is later than all others in
//! it, so there are as many files as threads lived at once. Sequence numbers and counts of lost events in packets run
//! over the file, since readers take their differences.

use crate::append::append;
use crate::directory;
use crate::output::Output;
use crate::packet::Packet;
use crate::records::Records;
use crate::thread_key::ThreadKey;
use anyhow::Result;
use nopal_abi::{ChunkHeader, Event, RESYNC_PART, Record};
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;

/// Files held open at once; reopening one is cheap compared with writing a packet.
const MOST_OPEN: usize = 128;

/// A wider gap between numbers is damage.
const WIDEST_GAP: u64 = 1 << 40;

/// The state of a stream file.
#[derive(Default)]
pub struct Stream {
    pub file: Option<File>,
    pub length: u64,
    /// The length that a note has announced.
    pub announced: u64,
    /// The last packet's last clock, sequence number and lost events.
    pub end: u64,
    pub sequence: Option<u64>,
    pub discarded: u64,
}

/// The state of a thread that may write more.
pub struct Thread {
    pub stream: Option<usize>,
    /// The number that its next chunk should have; unknown where another writer wrote its last one.
    pub next_sequence: Option<u64>,
    /// Its lost events that are counted in packets.
    pub discarded: u64,
    /// Events in chunks that were given up, which its next packet is to count as lost.
    pub given_up: u64,
}

/// The end of another writer's records of a thread. It had read the records before this clock, and left some of them
/// out; of those with this clock it may have read a part.
pub struct Adopted {
    pub end: u64,
    /// The first words of the records with this clock in its last packet.
    last: Vec<u64>,
}

impl Adopted {
    fn of(packet: &Packet) -> Adopted {
        let end = packet.clock_end();
        let last = positions(packet.words(), packet.clock_begin())
            .filter(|(record, _)| record.clock == end && !is_of_writer(record))
            .map(|(_, at)| packet.words()[at.start])
            .collect();
        Adopted { end, last }
    }

    /// The number of these words that the other writer had read. The first record is not before `begin`.
    pub fn read(&self, words: &[u64], begin: u64) -> usize {
        let mut last = self.last.iter().peekable();
        let mut read = 0;
        for (record, at) in positions(words, begin) {
            let is_read = match record.clock.cmp(&self.end) {
                Ordering::Less => true,
                Ordering::Equal => last.next_if_eq(&&words[at.start]).is_some(),
                Ordering::Greater => break,
            };
            if is_read {
                read = at.end;
            }
        }
        read
    }
}

/// Records and the words that they take.
pub fn positions(words: &[u64], begin: u64) -> impl Iterator<Item = (Record<'_>, Range<usize>)> {
    let mut records = Records::new(words, begin);
    std::iter::from_fn(move || {
        let start = words.len() - records.rest().len();
        let record = records.next()?;
        Some((record, start..words.len() - records.rest().len()))
    })
}

/// Whether a writer put it before the rest of a chunk, or behind it.
fn is_of_writer(record: &Record) -> bool {
    matches!(
        record.event,
        Event::Resync {
            reason: RESYNC_PART,
            ..
        } | Event::ShortCalls { .. }
    )
}

pub struct Streams {
    output: Output,
    pub files: Vec<Stream>,
    pub threads: HashMap<ThreadKey, Thread>,
    /// The end of another writer's records of each thread. The writer may have been killed before it recorded this.
    adopted: HashMap<ThreadKey, Adopted>,
    /// Files of ended threads, by their last clock.
    free: BTreeSet<(u64, usize)>,
    open: usize,
}

impl Streams {
    pub fn new(output: Output) -> Streams {
        Streams {
            output,
            files: Vec::new(),
            threads: HashMap::new(),
            adopted: HashMap::new(),
            free: BTreeSet::new(),
            open: 0,
        }
    }

    pub fn thread(&mut self, key: ThreadKey) -> &mut Thread {
        self.threads.entry(key).or_insert(Thread {
            stream: None,
            next_sequence: Some(0),
            discarded: 0,
            given_up: 0,
        })
    }

    /// A packet that another writer wrote.
    pub fn adopt(&mut self, packet: &Packet) {
        let before = self.adopted.get(&packet.thread());
        if before.is_none_or(|before| before.end <= packet.clock_end()) {
            self.adopted.insert(packet.thread(), Adopted::of(packet));
        }
    }

    pub fn adopted(&self, thread: ThreadKey) -> Option<&Adopted> {
        self.adopted.get(&thread)
    }

    /// A chunk of this thread held no event, and becomes no packet.
    pub fn skip(&mut self, header: &ChunkHeader) {
        self.thread(ThreadKey::of(header)).next_sequence = header.sequence.checked_add(1);
    }

    /// Skips a chunk, or a part of it, which is not written. Returns whether records before it are missing.
    pub fn pass(&mut self, chunk: &ChunkHeader, last: bool) -> bool {
        let thread = self.thread(ThreadKey::of(chunk));
        let missing = thread
            .next_sequence
            .map_or(0, |next| gap(next, chunk.sequence));
        let lost = gap(thread.discarded, chunk.discarded);
        thread.next_sequence = chunk.sequence.checked_add(u64::from(last));
        thread.discarded = chunk.discarded;
        missing + lost > 0
    }

    /// Chooses the file for a packet, and sets the numbers in its header.
    pub fn place(&mut self, header: &mut ChunkHeader) -> Result<usize> {
        let key = ThreadKey::of(header);
        let index = self.stream(key, header.clock_begin)?;
        let stream = &self.files[index];
        let thread = &self.threads[&key];
        let missing = thread
            .next_sequence
            .map_or(0, |next| gap(next, header.sequence));
        let next = stream.sequence.map_or(0, |last| last.saturating_add(1));
        header.sequence = next.saturating_add(missing);
        header.discarded = stream
            .discarded
            .saturating_add(gap(thread.discarded, header.discarded))
            .saturating_add(thread.given_up);
        Ok(index)
    }

    /// Appends a packet. `chunk` is its header as the thread left it, `packet` the placed one, `bytes` the whole.
    /// `last`: no other packet will be made of the chunk.
    pub fn append(
        &mut self,
        index: usize,
        chunk: &ChunkHeader,
        packet: &ChunkHeader,
        bytes: &[u8],
        last: bool,
    ) -> Result<()> {
        self.open(index, false)?;
        let stream = &mut self.files[index];
        if let Some(file) = &stream.file {
            append(file, stream.length, bytes)?;
        }
        stream.length += bytes.len() as u64;
        stream.end = packet.clock_end;
        stream.sequence = Some(packet.sequence);
        stream.discarded = packet.discarded;
        let thread = self.thread(ThreadKey::of(chunk));
        thread.next_sequence = chunk.sequence.checked_add(u64::from(last));
        thread.discarded = chunk.discarded;
        thread.given_up = 0;
        Ok(())
    }

    /// The lengths of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|stream| stream.length).sum()
    }

    /// The lengths of files that have grown since `announced`.
    pub fn grown(&self) -> Vec<(u32, u64)> {
        let files = (0..).zip(&self.files);
        let grown = files.filter(|(_, stream)| stream.length != stream.announced);
        grown
            .map(|(number, stream)| (number, stream.length))
            .collect()
    }

    pub fn announce(&mut self) {
        let files = self.files.iter_mut();
        files.for_each(|stream| stream.announced = stream.length);
    }

    pub fn ended(&mut self, key: ThreadKey) {
        if let Some(Thread {
            stream: Some(index),
            ..
        }) = self.threads.remove(&key)
        {
            self.free.insert((self.files[index].end, index));
        }
    }

    pub fn process_ended(&mut self, process: u32) {
        let keys: Vec<ThreadKey> = self
            .threads
            .keys()
            .filter(|key| key.process == process)
            .copied()
            .collect();
        keys.into_iter().for_each(|key| self.ended(key));
    }

    fn stream(&mut self, key: ThreadKey, begin: u64) -> Result<usize> {
        let current = self.thread(key).stream;
        if let Some(index) = current {
            let end = self.files[index].end;
            if end <= begin {
                return Ok(index);
            }
            self.free.insert((end, index));
            self.thread(key).stream = None;
        }
        let index = match self.free.first().copied() {
            Some((end, index)) if end < begin => {
                self.free.remove(&(end, index));
                index
            }
            _ => {
                self.files.push(Stream::default());
                let index = self.files.len() - 1;
                if let Err(error) = self.open(index, true) {
                    self.files.pop();
                    return Err(error);
                }
                index
            }
        };
        self.thread(key).stream = Some(index);
        Ok(index)
    }

    fn open(&mut self, index: usize, new: bool) -> Result<()> {
        if self.files[index].file.is_some() {
            return Ok(());
        }
        if self.open >= MOST_OPEN {
            self.files.iter_mut().for_each(|stream| stream.file = None);
            self.open = 0;
        }
        let name = directory::stream_name(index as u32);
        let file = match new {
            true => self.output.create(&name)?,
            false => self.output.open(&name)?,
        };
        self.files[index].file = Some(file);
        self.open += 1;
        Ok(())
    }
}

/// The number of numbers that are missing before `found`.
pub fn gap(expected: u64, found: u64) -> u64 {
    match found.checked_sub(expected) {
        Some(gap) if gap <= WIDEST_GAP => gap,
        _ => 0,
    }
}
