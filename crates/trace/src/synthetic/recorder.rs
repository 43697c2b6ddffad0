//! Records into chunks as a traced thread does.

use crate::header;
use crate::layout::*;
use crate::writer::{Chunk, Writer};
use anyhow::Result;
use nopal_abi::*;

/// A thread that records.
pub struct Recorder {
    header: ChunkHeader,
    words: Vec<u64>,
    clock: u64,
    stack: u64,
    full: Vec<Vec<u64>>,
}

impl Recorder {
    pub fn new(process: u32, thread: u32, begin: u64) -> Recorder {
        let header = ChunkHeader {
            process,
            thread,
            thread_begin: begin,
            ..ChunkHeader::default()
        };
        Recorder {
            header,
            words: Vec::new(),
            clock: 0,
            stack: 0x7ffd_0000_0000,
            full: Vec::new(),
        }
    }

    pub fn entry(&mut self, clock: u64, site: u32, slot: u64) {
        self.record(clock, KIND_ENTRY, site, slot, &[]);
    }

    pub fn exit(&mut self, clock: u64, site: u32, slot: u64) {
        self.record(clock, KIND_EXIT, site, slot, &[]);
    }

    /// A record of any kind but an extended one, with the words behind its first one.
    pub fn record(&mut self, clock: u64, kind: u32, site: u32, slot: u64, more: &[u64]) {
        if self.words.is_empty() {
            self.begin(clock, slot);
        } else if self.words.len() + 1 + more.len() > CHUNK_BYTES / 8 {
            self.end_chunk();
            self.begin(clock, slot);
        } else if clock >> 32 != self.clock >> 32 {
            self.resync(clock, slot, RESYNC_CLOCK);
            return self.record(clock, kind, site, slot, more);
        }
        self.words.push(Word::new(kind, site, slot, clock).0);
        self.words.extend_from_slice(more);
        self.clock = clock;
    }

    /// A marker, with the words of its fields, where the thread is at `slot`.
    pub fn marker(&mut self, clock: u64, event: u32, fields: &[u64], slot: u64) {
        if self.words.len() + 2 + fields.len() > CHUNK_BYTES / 8 {
            self.end_chunk();
        }
        if self.words.is_empty() {
            self.begin(clock, slot);
        }
        self.words.push(Word::extended(event, clock).0);
        self.words.push(clock);
        self.words.extend_from_slice(fields);
        self.clock = clock;
    }

    pub fn resync(&mut self, clock: u64, slot: u64, reason: u32) {
        if self.words.len() + RESYNC_WORDS > CHUNK_BYTES / 8 {
            self.end_chunk();
        }
        if self.words.is_empty() {
            return self.begin(clock, slot);
        }
        self.push_resync(clock, slot, reason);
    }

    /// Events that found no chunk free.
    pub fn lose(&mut self, events: u64) {
        self.end_chunk();
        self.header.discarded += events;
    }

    /// The words of the chunk being filled, header and all, to be damaged.
    pub fn words(&mut self) -> &mut Vec<u64> {
        &mut self.words
    }

    /// Goes on in a new chunk.
    pub fn end_chunk(&mut self) {
        if self.words.is_empty() {
            return;
        }
        let mut words = std::mem::take(&mut self.words);
        words.resize(CHUNK_BYTES / 8, 0);
        self.full.push(words);
        self.header.sequence += 1;
    }

    /// The chunks that are full.
    pub fn take_full(&mut self) -> Vec<Vec<u64>> {
        std::mem::take(&mut self.full)
    }

    /// Writes the chunks that are full. Returns how many events they held.
    pub fn write_full(&mut self, writer: &mut Writer) -> Result<u64> {
        let mut sum = 0;
        for mut words in self.full.drain(..) {
            if let Chunk::Written { events, .. } = writer.chunk(bytes_mut(&mut words), true)? {
                sum += events;
            }
        }
        Ok(sum)
    }

    /// Writes all chunks, and ends the thread.
    pub fn finish(mut self, writer: &mut Writer) -> Result<u64> {
        self.end_chunk();
        let events = self.write_full(writer)?;
        writer.thread_ended(
            self.header.process,
            self.header.thread,
            self.header.thread_begin,
        );
        Ok(events)
    }

    fn begin(&mut self, clock: u64, slot: u64) {
        let mut words = [0; HEADER_WORDS];
        header::write(
            &ChunkHeader {
                clock_begin: clock,
                ..self.header
            },
            &mut words,
        );
        self.words.reserve_exact(CHUNK_BYTES / 8);
        self.words.extend_from_slice(&words);
        self.push_resync(clock, slot, RESYNC_CHUNK);
    }

    fn push_resync(&mut self, clock: u64, slot: u64, reason: u32) {
        let of = (self.header.process, self.header.thread);
        let resync = Resync::new(clock, slot, self.stack, of, reason);
        self.words.extend_from_slice(&resync.words());
        self.clock = clock;
    }
}

/// The bytes of a chunk's words.
pub fn bytes_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: any u64 is bytes, and any bytes are a u64.
    unsafe { words.align_to_mut().1 }
}
