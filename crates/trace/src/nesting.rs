//! A thread's work in the kernel among the thread's own records.
//!
//! A thread's records in the kernel are in packets of their own. A thread is at one place at a time, so the order of
//! the clocks is the order of the records: the packets of both are cut into parts that follow each other.

use crate::packet::{Packet, PacketId};
use crate::records::Records;
use crate::stream_file::StreamFile;
use std::vec;

/// The packets of a thread, in order of time, to be cut.
pub(crate) struct Parts<'a> {
    streams: &'a [StreamFile],
    packets: vec::IntoIter<PacketId>,
    packet: Option<Rest<'a>>,
}

/// The rest of a packet.
struct Rest<'a> {
    id: PacketId,
    /// Its next record's clock, and the word behind that record.
    next: (u64, u32),
    /// The records behind the next one.
    records: Records<'a>,
}

impl<'a> Parts<'a> {
    pub fn new(streams: &'a [StreamFile], packets: Vec<PacketId>) -> Parts<'a> {
        let mut parts = Parts {
            streams,
            packets: packets.into_iter(),
            packet: None,
        };
        parts.go_on();
        parts
    }

    fn go_on(&mut self) {
        if let Some(read) = self.packet.take() {
            Packet::new(self.streams, read.id).release();
        }
        self.packet = self.packets.next().map(|id| {
            let packet = Packet::new(self.streams, id);
            let mut records = packet.records();
            let next = next(&mut records, id).unwrap_or((id.clock_begin, id.end));
            Rest { id, next, records }
        });
    }

    /// The clock of the next record.
    pub fn clock(&self) -> Option<u64> {
        self.packet.as_ref().map(|rest| rest.next.0)
    }

    /// Cuts off the next record, and those after it in its packet whose clocks are below `limit`.
    pub fn cut(&mut self, limit: u64) -> Option<PacketId> {
        let rest = self.packet.as_mut()?;
        let mut part = PacketId {
            clock_begin: rest.next.0,
            clock_end: rest.next.0,
            end: rest.next.1,
            ..rest.id
        };
        loop {
            if rest.id.clock_end < limit {
                let whole = rest.id;
                self.go_on();
                part.end = whole.end;
                part.clock_end = whole.clock_end;
                return Some(part);
            }
            match next(&mut rest.records, rest.id) {
                Some((clock, end)) if clock < limit => {
                    part.clock_end = clock;
                    part.end = end;
                }
                Some(next) => {
                    rest.next = next;
                    rest.id.first = part.end;
                    return Some(part);
                }
                // Words that cannot be decoded belong to the last part.
                None => {
                    part.end = rest.id.end;
                    self.go_on();
                    return Some(part);
                }
            }
        }
    }
}

/// The clock of the next record of a packet, and the word behind it.
fn next(records: &mut Records, id: PacketId) -> Option<(u64, u32)> {
    let clock = records.next()?.clock;
    Some((clock, id.end - records.rest().len() as u32))
}

/// The packets of a thread, with its work in the kernel as far as that began before `until`.
pub(crate) fn nest(mut own: Parts, kernel: &mut Parts, until: u64) -> Vec<PacketId> {
    let mut nested = Vec::new();
    loop {
        let kernel_clock = kernel.clock().filter(|clock| *clock < until);
        let part = match (own.clock(), kernel_clock) {
            (None, None) => return nested,
            (Some(_), None) => own.cut(u64::MAX),
            (None, Some(_)) => kernel.cut(until),
            (Some(clock), Some(kernel_clock)) if clock <= kernel_clock => own.cut(kernel_clock),
            (Some(clock), Some(_)) => kernel.cut(clock.min(until)),
        };
        nested.extend(part);
    }
}
