//! Sites, processes, threads and damage of a trace.

use crate::kernel_events::{KernelEvent, KernelRecord};
use crate::note::Note;
use crate::packet::{Packet, PacketId};
use crate::stream_file::StreamFile;
use crate::thread_key::ThreadKey;
use nopal_abi::Event;
use std::iter;
use std::ops::Range;
use std::path::PathBuf;

/// A site that was traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteInfo<'a> {
    pub site: u32,
    pub image: u32,
    /// Its link-time address.
    pub address: u64,
    pub size: u64,
    /// Its raw name.
    pub name: &'a str,
}

/// A program that ran in a process: another one after each exec. Unknown fields are 0 or empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessInfo<'a> {
    pub process: u32,
    pub parent: u32,
    pub counter: u64,
    pub name: &'a str,
    pub executable: &'a str,
    pub arguments: &'a [String],
}

/// A thread that has packets.
#[derive(Clone, Copy)]
pub struct ThreadInfo<'a> {
    pub process: u32,
    pub thread: u32,
    pub begin: u64,
    /// Its last known name, or none.
    pub name: &'a str,
    /// Its id is that of a PID namespace of its own, since the one outside is not known. It differs in kernel events.
    pub in_namespace: bool,
    /// The counter until which the calls were open that are open at its last record; 0: it is not known to be later.
    pub alive_until: u64,
    pub(crate) streams: &'a [StreamFile],
    pub(crate) packets: &'a [PacketId],
}

impl<'a> ThreadInfo<'a> {
    pub fn key(&self) -> ThreadKey {
        ThreadKey {
            process: self.process,
            thread: self.thread,
            begin: self.begin,
        }
    }

    /// Its packets in order of time, those of its work in the kernel among them.
    pub fn packets(
        &self,
    ) -> impl DoubleEndedIterator<Item = Packet<'a>> + ExactSizeIterator + Clone + use<'a> {
        let streams = self.streams;
        self.packets.iter().map(move |id| Packet::new(streams, *id))
    }

    /// The packets of these numbers, without going over the ones before.
    pub fn packets_in(
        &self,
        numbers: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = Packet<'a>> + ExactSizeIterator + Clone + use<'a> {
        let streams = self.streams;
        let end = numbers.end.min(self.packets.len());
        let packets = &self.packets[numbers.start.min(end)..end];
        packets.iter().map(move |id| Packet::new(streams, *id))
    }

    /// The counter at its last record, or until which calls were open then.
    pub fn clock_end(&self) -> u64 {
        let last = self.packets().next_back();
        last.map_or(0, |last| last.clock_end().max(self.alive_until))
    }

    /// Its events that were lost before one of its packets.
    pub fn lost(&self) -> u64 {
        self.packets()
            .fold(0, |sum, packet| sum.saturating_add(packet.lost_before()))
    }
}

/// A processor that has events.
#[derive(Clone, Copy)]
pub struct ProcessorInfo<'a> {
    pub number: u32,
    pub(crate) stream: &'a StreamFile,
    pub(crate) notes: &'a [Note],
    /// The name in its note.
    pub(crate) lost: u64,
}

impl<'a> ProcessorInfo<'a> {
    /// Its events in order of time, and where some are missing. Invalid data is skipped.
    pub fn events(&self) -> impl Iterator<Item = KernelRecord> + use<'a> {
        let mut noted = self.noted().peekable();
        let mut pauses = self.pauses().into_iter().peekable();
        iter::from_fn(move || {
            let is_before = |pause: &u64| noted.peek().is_some_and(|next| *pause <= next.clock);
            match pauses.next_if(is_before) {
                Some(clock) => Some(KernelRecord {
                    clock,
                    event: KernelEvent::Lost { events: 0 },
                }),
                None => noted.next(),
            }
        })
    }

    fn pauses(&self) -> Vec<u64> {
        let pauses = self.notes.iter().filter_map(|note| match note {
            Note::SystemPause { counter } => Some(*counter),
            _ => None,
        });
        let mut pauses: Vec<u64> = pauses.collect();
        pauses.sort_unstable();
        pauses
    }

    /// Without the pauses of recording.
    fn noted(&self) -> impl Iterator<Item = KernelRecord> + use<'a> {
        let begin = |packet: Packet| packet.clock_begin();
        let ends = self.packets().map(|packet| packet.clock_end());
        let ends = self.packets().next().map(begin).into_iter().chain(ends);
        self.packets().zip(ends).flat_map(|(packet, last)| {
            let lost = packet.is_behind_loss().then(|| KernelRecord {
                clock: last,
                event: KernelEvent::Lost {
                    events: packet.lost_before(),
                },
            });
            let events = packet.records().filter_map(|record| match record.event {
                Event::Marker { event, payload } => {
                    KernelRecord::decode(record.clock, event, payload)
                }
                _ => None,
            });
            lost.into_iter().chain(events)
        })
    }

    /// Its packets in order of time.
    pub fn packets(&self) -> impl DoubleEndedIterator<Item = Packet<'a>> + use<'a> {
        let stream = self.stream;
        let packets = stream.packets.iter();
        packets.map(move |entry| Packet::whole(entry, &stream.file))
    }

    /// The number of its events that are not in the trace.
    pub fn lost(&self) -> u64 {
        let packets = self
            .packets()
            .fold(0u64, |sum, packet| sum.saturating_add(packet.lost_before()));
        packets.max(self.lost)
    }
}

/// Damage in a trace, of which the rest is still read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: PathBuf,
    /// In bytes; in `session`, in lines.
    pub offset: u64,
    /// Bytes of the file that are left out or missing.
    pub bytes: u64,
    pub what: &'static str,
}
