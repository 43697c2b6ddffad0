//! A chunk that is written in several packets, the first while its thread still fills it.

use crate::layout::*;
use nopal_abi::*;

/// Who may still write to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its thread fills it: what counts is what is complete, up to the first word that is not.
    Growing,
    /// Its thread has gone on, but for records that it reserved and is about to store.
    HandedOver,
    /// Nobody. What is missing stays missing.
    Settled,
}

/// How much of a chunk is in packets already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Words of records from the chunk's first on.
    words: usize,
    /// Of the last of them.
    clock: u64,
}

impl Taken {
    /// Bytes from the chunk's begin on, with its header.
    pub fn bytes(self) -> usize {
        HEADER_BYTES + self.words * 8
    }

    /// The clock that the packet of the rest begins with, if there is one before.
    pub(crate) fn clock(self) -> Option<u64> {
        (self.words > 0).then_some(self.clock)
    }

    /// Words that the packet of the rest has, and the chunk has not, or has in another packet.
    fn repeated(self) -> usize {
        if self.words > 0 { RESYNC_WORDS } else { 0 }
    }

    /// Where the packet of the rest begins, in words of the chunk.
    pub(crate) fn start(self) -> usize {
        self.words - self.repeated()
    }

    /// With one more packet, of so many words of records.
    pub(crate) fn and(self, words: usize, clock: u64) -> Taken {
        Taken {
            words: self.start() + words,
            clock,
        }
    }

    /// Puts a RESYNC before the rest, where words are that have been taken.
    pub(crate) fn resume(self, records: &mut [u64], header: &ChunkHeader) {
        if let (Some(clock), Some(record)) = (self.clock(), records.first_chunk_mut()) {
            let of = (header.process, header.thread);
            *record = Resync::new(clock, 0, 0, of, RESYNC_PART).words();
        }
    }
}
