//! A packet of a trace, which holds one chunk's records.

use crate::gap::Gap;
use crate::index::Entry;
use crate::mapping::Mapping;
use crate::note::{OpenCall, Place};
use crate::records::Records;
use crate::stream_file::StreamFile;
use crate::streams::positions;
use crate::thread_key::ThreadKey;
use nopal_abi::Event;

/// A packet of a stream's file, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketId {
    pub stream: u32,
    pub index: u32,
    /// The words of its records, from the packet's first.
    pub first: u32,
    pub end: u32,
    /// The counter at its first record, and at its last one.
    pub clock_begin: u64,
    pub clock_end: u64,
    pub is_of_kernel: bool,
    /// See [`Packet::is_behind_unwrapping`].
    pub is_behind_unwrapping: bool,
    /// See [`Packet::stopped_before`] and [`Packet::is_stopped`].
    pub stopped_before: u64,
    pub is_stopped: bool,
}

impl PacketId {
    pub fn whole(stream: u32, index: u32, entry: &Entry) -> PacketId {
        PacketId {
            stream,
            index,
            first: 0,
            end: entry.words().len() as u32,
            clock_begin: entry.clock_begin,
            clock_end: entry.clock_end,
            is_of_kernel: false,
            is_behind_unwrapping: false,
            stopped_before: 0,
            is_stopped: false,
        }
    }
}

/// A packet, or the part of one between two switches of its thread into the kernel or out of it, or up to a moment in
/// which its calls were unwrapped, or recording was stopped or started.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    id: PacketId,
    entry: &'a Entry,
    file: &'a Mapping,
    words: &'a [u64],
}

impl<'a> Packet<'a> {
    pub(crate) fn new(streams: &'a [StreamFile], id: PacketId) -> Packet<'a> {
        let stream = &streams[id.stream as usize];
        Packet::of(id, &stream.packets[id.index as usize], &stream.file)
    }

    pub(crate) fn whole(entry: &'a Entry, file: &'a Mapping) -> Packet<'a> {
        Packet::of(PacketId::whole(0, 0, entry), entry, file)
    }

    fn of(id: PacketId, entry: &'a Entry, file: &'a Mapping) -> Packet<'a> {
        let words = file.words().get(entry.words()).unwrap_or_default();
        let words = words.get(id.first as usize..id.end as usize);
        Packet {
            id,
            entry,
            file,
            words: words.unwrap_or_default(),
        }
    }

    /// The number of its words up to a clock: up to the last event that is not after it. A RESYNC or a hole belongs to
    /// the event behind it.
    pub fn words_until(&self, clock: u64) -> usize {
        let records = positions(self.words, self.id.clock_begin);
        let until = records.take_while(|(record, _)| record.clock <= clock);
        let events =
            until.filter(|(record, _)| !matches!(record.event, Event::Resync { .. } | Event::Hole));
        events.last().map_or(0, |(_, at)| at.end)
    }

    /// The number of its words before a clock, without a RESYNC that belongs to a later event.
    pub fn words_before(&self, clock: u64) -> usize {
        if self.id.clock_end < clock {
            return self.words.len();
        }
        let records = positions(self.words, self.id.clock_begin);
        let before = records.take_while(|(record, _)| record.clock < clock);
        let events = before.filter(|(record, _)| !matches!(record.event, Event::Resync { .. }));
        events.last().map_or(0, |(_, at)| at.end)
    }

    /// The words of its records.
    pub fn words(&self) -> &'a [u64] {
        self.words
    }

    /// Calls that were left out of it since they were short.
    pub fn short_calls(&self) -> u64 {
        self.if_first(self.entry.short_calls).into()
    }

    #[inline]
    pub fn records(&self) -> Records<'a> {
        Records::new(self.words, self.id.clock_begin)
    }

    /// For a reader that has finished it, and goes on to the next one in the file: see [`Mapping::release`].
    pub fn release(&self) {
        if self.id.end as usize == self.entry.words().len() {
            self.file.release(self.entry.words());
        }
    }

    /// Whether its records were made in the kernel.
    pub fn is_of_kernel(&self) -> bool {
        self.id.is_of_kernel
    }

    /// Whether the calls that its thread had open before it have no ends in the trace: see [`crate::Note::Unwrapped`].
    pub fn is_behind_unwrapping(&self) -> bool {
        self.id.is_behind_unwrapping
    }

    /// The ticks for which recording was stopped between the thread's record before it and its first one.
    pub fn stopped_before(&self) -> u64 {
        self.id.stopped_before
    }

    /// Whether recording was stopped at all of its records: these are ends of calls.
    pub fn is_stopped(&self) -> bool {
        self.id.is_stopped
    }

    pub fn thread(&self) -> ThreadKey {
        self.entry.thread
    }

    /// The counter at its first record, and at its last one.
    pub fn clock_begin(&self) -> u64 {
        self.id.clock_begin
    }

    pub fn clock_end(&self) -> u64 {
        self.id.clock_end
    }

    /// Events of its thread that were lost since the thread's packet before.
    pub fn lost_before(&self) -> u64 {
        self.if_first(self.entry.lost_before)
    }

    /// The gap in its thread's records before it.
    pub fn gap(&self) -> Option<Gap> {
        let gap = Gap {
            events: self.lost_before(),
            packets: self.missing_before(),
            damaged: self.if_first(self.entry.damage_before),
        };
        (gap != Gap::default()).then_some(gap)
    }

    /// Whether records of its thread are missing before it.
    pub fn is_behind_loss(&self) -> bool {
        self.gap().is_some()
    }

    /// The calls that were open before it, the outermost first, where it is the first of its thread and these are known.
    pub fn open_calls(&self) -> &'a [OpenCall] {
        let open = self.entry.open.as_ref();
        self.if_first(open.map_or(&[], |open| &open.0))
    }

    /// What is known of its thread's place before it, likewise.
    pub fn place(&self) -> Option<&'a Place> {
        self.if_first(self.entry.open.as_ref().map(|open| &open.1))
    }

    /// Packets of its thread that are missing since the thread's packet before.
    pub fn missing_before(&self) -> u64 {
        self.if_first(self.entry.missing_before).into()
    }

    /// A value that belongs before a packet belongs before its first part.
    fn if_first<T: Default>(&self, what: T) -> T {
        match self.id.first {
            0 => what,
            _ => T::default(),
        }
    }
}
