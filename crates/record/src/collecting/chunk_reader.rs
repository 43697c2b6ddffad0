//! Reads the chunks of regions, each thread's in order, and remembers how much of them is read. The trace's files and
//! its subscribers have a reader each, since they come at different times.

use crate::memory::region::Region;
use nopal_abi::*;
use nopal_trace::{ChunkCursor, ChunkPhase, ThreadKey};
use std::collections::HashMap;

/// The chunk's thread, and its number among the thread's chunks.
pub type ChunkName = (ThreadKey, u64);

/// The number of a thread's first chunk to read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Number 0: no record is skipped.
    First,
    /// The first that is found: the reader may begin later than the thread.
    Any,
}

/// The position of a thread's next records: after the taken part of the chunk with this number.
#[derive(Clone, Copy, Default)]
struct Position {
    sequence: u64,
    cursor: ChunkCursor,
}

/// A chunk that is in the buffer of its reader.
pub struct Copied {
    pub name: ChunkName,
    pub state: ChunkPhase,
    /// The name that the thread has given itself meanwhile, as bytes.
    pub given: [u8; 16],
    /// Bytes of it that are in the buffer.
    pub used: usize,
    /// The part taken before, and the part taken including this time.
    pub cursor: ChunkCursor,
}

pub struct ChunkReader {
    begin: Begin,
    buffer: Box<[u64; CHUNK_BYTES / 8]>,
    positions: HashMap<ThreadKey, Position>,
    /// The thread of the last chunk, where a round reached its limit.
    last_served: Option<ThreadKey>,
}

impl ChunkReader {
    pub fn new(begin: Begin) -> ChunkReader {
        ChunkReader {
            begin,
            buffer: Box::new([0; CHUNK_BYTES / 8]),
            positions: HashMap::new(),
            last_served: None,
        }
    }

    /// The chunks that threads have handed over, each thread's in order, from those of the thread behind the one that
    /// was served last: no thread is always the last. Two may have one number: a thread can die over a chunk that it has
    /// not begun, after a signal handler has begun another.
    pub fn full(
        &mut self,
        region: &Region,
        wanted: impl Fn(usize) -> bool,
    ) -> Vec<(ChunkName, usize)> {
        let mut chunks: Vec<_> = (0..region.chunks())
            .filter(|chunk| region.chunk_state(*chunk) == CHUNK_FULL && wanted(*chunk))
            .map(|chunk| (name_of(region, chunk), chunk))
            .collect();
        chunks.sort_unstable();
        if let Some(last) = self.last_served.take() {
            let served = chunks.partition_point(|((key, _), _)| *key <= last);
            chunks.rotate_left(served);
        }
        chunks
    }

    /// Whether a chunk that has not been freed is of a thread.
    pub fn has_more(&self, region: &Region, thread: ThreadKey) -> bool {
        let mut chunks = 0..region.chunks();
        chunks.any(|chunk| {
            matches!(region.chunk_state(chunk), CHUNK_OWNED | CHUNK_FULL)
                && name_of(region, chunk).0 == thread
        })
    }

    /// The next round begins behind this thread.
    pub fn end_round_with(&mut self, thread: ThreadKey) {
        self.last_served = Some(thread);
    }

    /// Whether a chunk of its thread is still to come before this one: a signal handler hands its chunk over before that
    /// which it has interrupted.
    pub fn is_early(&self, name: ChunkName) -> bool {
        self.position(name).sequence < name.1
    }

    /// Copies a chunk that its thread has handed over.
    pub fn copy(&mut self, region: &Region, chunk: usize, state: ChunkPhase) -> Copied {
        let name = name_of(region, chunk);
        Copied {
            name,
            state,
            given: region.header(chunk).uuid,
            used: region.copy(chunk, bytes_of(&mut self.buffer)),
            cursor: self.position(name).cursor_in(name.1),
        }
    }

    /// Copies a chunk that its thread still fills. None: nothing in it is new, or it is not the thread's next.
    pub fn copy_growing(&mut self, region: &Region, chunk: usize) -> Option<Copied> {
        let name = name_of(region, chunk);
        let Position { sequence, cursor } = self.position(name);
        // A thread that has just taken the chunk has not filled in the header.
        if name.0.thread == 0 || sequence != name.1 || !region.has_more(chunk, cursor.bytes()) {
            return None;
        }
        let used = region.copy_growing(chunk, cursor.bytes(), bytes_of(&mut self.buffer));
        // It may have given the chunk back unused, and another have taken it.
        let header = region.header(chunk);
        ((ThreadKey::of(&header), header.sequence) == name).then_some(Copied {
            name,
            state: ChunkPhase::Growing,
            given: header.uuid,
            used,
            cursor,
        })
    }

    /// The chunk that was copied last.
    pub fn bytes(&mut self, copied: &Copied) -> &mut [u8] {
        &mut bytes_of(&mut self.buffer)[..copied.used]
    }

    pub fn words(&self, copied: &Copied) -> &[u64] {
        &self.buffer[..copied.used / 8]
    }

    /// Commits the taken part of a chunk.
    pub fn advance(&mut self, copied: &Copied) {
        let (key, sequence) = copied.name;
        let position = match copied.state {
            ChunkPhase::Growing => Position {
                sequence,
                cursor: copied.cursor,
            },
            _ if sequence < self.position(copied.name).sequence => return,
            _ => Position {
                sequence: sequence.saturating_add(1),
                cursor: ChunkCursor::default(),
            },
        };
        self.positions.insert(key, position);
    }

    /// The threads of which something has been read.
    pub fn has_read(&self) -> bool {
        !self.positions.is_empty()
    }

    /// Forgets threads, and returns them.
    pub fn forget(
        &mut self,
        which: impl Fn(&ThreadKey) -> bool,
    ) -> impl Iterator<Item = ThreadKey> {
        let forgotten = self.positions.extract_if(move |key, _| which(key));
        forgotten.map(|(key, _)| key)
    }

    pub fn forget_all(&mut self) {
        self.positions.clear();
    }

    fn position(&self, (key, sequence): ChunkName) -> Position {
        let first = match self.begin {
            Begin::First => 0,
            Begin::Any => sequence,
        };
        let known = self.positions.get(&key).copied();
        known.unwrap_or(Position {
            sequence: first,
            cursor: ChunkCursor::default(),
        })
    }
}

impl Position {
    fn cursor_in(self, sequence: u64) -> ChunkCursor {
        if self.sequence == sequence {
            self.cursor
        } else {
            ChunkCursor::default()
        }
    }
}

pub fn name_of(region: &Region, chunk: usize) -> ChunkName {
    let header = region.header(chunk);
    (ThreadKey::of(&header), header.sequence)
}

fn bytes_of(buffer: &mut [u64; CHUNK_BYTES / 8]) -> &mut [u8; CHUNK_BYTES] {
    zerocopy::transmute_mut!(buffer)
}
