//! A chunk that is written in several packets, the first while its thread still fills it.

use crate::layout::*;
use nopal_abi::*;

/// The threads that may still write to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkPhase {
    /// Its thread fills it. Records count up to the first that is incomplete.
    Growing,
    /// Its thread has another chunk, but may still store records that it reserved here.
    HandedOver,
    /// None. Missing records stay missing.
    Settled,
}

/// A cursor: how much of a chunk is in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCursor {
    /// Words of records from the chunk's first on.
    words: usize,
    /// The clock of the last record that was read.
    clock: u64,
}

impl ChunkCursor {
    /// Bytes from the chunk's begin on, with its header.
    pub fn bytes(self) -> usize {
        HEADER_BYTES + self.words * 8
    }

    /// The first clock of the next packet, unless it is the first.
    pub(crate) fn clock(self) -> Option<u64> {
        (self.words > 0).then_some(self.clock)
    }

    /// The words of the next packet that are not new: those of its RESYNC.
    fn repeated(self) -> usize {
        if self.words > 0 { RESYNC_WORDS } else { 0 }
    }

    /// The begin of the next packet, in words of the chunk.
    pub(crate) fn start(self) -> usize {
        self.words - self.repeated()
    }

    /// The cursor behind one more packet with this many words of records.
    pub(crate) fn and(self, words: usize, clock: u64) -> ChunkCursor {
        ChunkCursor {
            words: self.start() + words,
            clock,
        }
    }

    /// Overwrites the words before the rest, which have been read, with a RESYNC.
    pub(crate) fn resume(self, records: &mut [u64], header: &ChunkHeader) {
        if let (Some(clock), Some(record)) = (self.clock(), records.first_chunk_mut()) {
            let of = (header.process, header.thread);
            *record = Resync::new(clock, 0, 0, of, RESYNC_PART).words();
        }
    }
}
