//! A packet of a trace, which holds one chunk's records.

use crate::index::Entry;
use crate::losses::Gap;
use crate::mapping::Mapping;
use crate::records::Records;
use crate::streams::ThreadKey;

#[derive(Clone, Copy)]
pub struct Packet<'a> {
    entry: &'a Entry,
    file: &'a Mapping,
    words: &'a [u64],
}

impl<'a> Packet<'a> {
    pub(crate) fn new(entry: &'a Entry, file: &'a Mapping) -> Packet<'a> {
        Packet {
            entry,
            file,
            words: file.words().get(entry.words()).unwrap_or_default(),
        }
    }

    /// The words of its records.
    pub fn words(&self) -> &'a [u64] {
        self.words
    }

    #[inline]
    pub fn records(&self) -> Records<'a> {
        Records::new(self.words, self.entry.clock_begin)
    }

    /// For a reader that has finished it, and goes on to the next one in the file: see [`Mapping::release`].
    pub fn release(&self) {
        self.file.release(self.entry.words());
    }

    pub fn thread(&self) -> ThreadKey {
        self.entry.thread
    }

    /// The counter at its first record, and at its last one.
    pub fn clock_begin(&self) -> u64 {
        self.entry.clock_begin
    }

    pub fn clock_end(&self) -> u64 {
        self.entry.clock_end
    }

    /// Events of its thread that were lost since the thread's packet before.
    pub fn lost_before(&self) -> u64 {
        self.entry.lost_before
    }

    /// The gap in its thread's records before it.
    pub fn gap(&self) -> Option<Gap> {
        let gap = Gap {
            events: self.lost_before(),
            packets: self.missing_before(),
            damaged: self.entry.damage_before,
        };
        (gap != Gap::default()).then_some(gap)
    }

    /// Whether records of its thread are missing before it.
    pub fn is_behind_loss(&self) -> bool {
        self.gap().is_some()
    }

    /// Packets of its thread that are missing since the thread's packet before.
    pub fn missing_before(&self) -> u64 {
        self.entry.missing_before.into()
    }
}
