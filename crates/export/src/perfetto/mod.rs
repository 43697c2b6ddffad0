//! The native format of Perfetto: a sequence of packets, encoded in Protocol Buffers.
//!
//! Each thread is a sequence of packets of its own, with its own numbers for names, and a clock that counts on from
//! packet to packet. Packets of different sequences may stand in any order. The trace's clock is CLOCK_MONOTONIC. Sched
//! events of the kernel have Perfetto's own form, from which it makes the tracks of processors and the states of
//! threads; Perfetto expects CLOCK_BOOTTIME in them, which a trace of nopal does not have: CLOCK_MONOTONIC is written
//! in its place.
//!
//! Numbers of fields are those of `protos/perfetto/trace/perfetto_trace.proto`.

mod calls;
mod processors;

use std::io::Write;

use anyhow::Result;
use nopal_analysis::blocks;
use nopal_analysis::drive::Drive;
use nopal_analysis::losses;
use nopal_analysis::names::{Names, ThreadNames, printable};
use nopal_analysis::sort;
use nopal_analysis::span::begin;
use nopal_trace::{FieldKind, Trace};

use crate::protobuf::Message;
use calls::{Calls, Labels};

/// In `Trace`.
const PACKET: u32 = 1;

/// In `TracePacket`.
mod packet {
    pub const FTRACE_EVENTS: u32 = 1;
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub const TIMESTAMP_CLOCK: u32 = 58;
    pub const DEFAULTS: u32 = 59;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    pub const FIRST_ON_SEQUENCE: u32 = 87;
}

/// In `TrackEvent`.
mod track_event {
    pub const CATEGORY: u32 = 3;
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_NUMBER: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const CATEGORY_TEXT: u32 = 22;
    pub const NAME: u32 = 23;
    pub const COUNTER_VALUE: u32 = 30;
    pub const DOUBLE_COUNTER_VALUE: u32 = 44;
    pub const FLOW: u32 = 47;
    pub const ENDING_FLOW: u32 = 48;
}

/// The types of a `TrackEvent`.
mod kind {
    pub const BEGIN: u64 = 1;
    pub const END: u64 = 2;
    pub const INSTANT: u64 = 3;
    pub const COUNTER: u64 = 4;
}

const STATE_CLEARED: u64 = 1;
const STATE_NEEDED: u64 = 2;

const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;
const BOOTTIME: u64 = 6;
/// A sequence's own clock.
const INCREMENTAL: u64 = 64;

/// The sequence of packets that belong to no thread. The sequences of threads follow.
const COMMON_SEQUENCE: u64 = 1;

/// The tracks: of losses, of each counter, of each processor, of each process, of each thread.
const LOSSES: u64 = 1;
const COUNTERS: u64 = 1 << 20;
const PROCESSORS: u64 = 2 << 20;
const PROCESSES: u64 = 1 << 32;
const THREADS: u64 = 2 << 32;

pub fn write(trace: &Trace, names: &Names, drive: &Drive, out: &mut dyn Write) -> Result<()> {
    let labels = Labels::new(trace, names);
    let from = drive.filter.and_then(|filter| filter.from).unwrap_or(0);
    let mut head = Message::default();
    push_clocks(&mut head, trace);
    push_tracks(&mut head, trace);
    push_losses(&mut head, trace);
    out.write_all(&head.bytes)?;
    let workers = blocks::write(trace, drive, out, |port| {
        Calls::new(trace, names, &labels, from, port)
    })?;
    for worker in workers {
        out.write_all(&worker.rest())?;
    }
    processors::write(trace, drive, out)
}

/// A packet of the common sequence.
fn push_packet(out: &mut Message, write: impl FnOnce(&mut Message)) {
    out.message(PACKET, |packet| {
        packet.number(packet::SEQUENCE, COMMON_SEQUENCE);
        write(packet);
    });
}

/// A packet of the common sequence with an event, at a time of CLOCK_MONOTONIC.
fn push_event(out: &mut Message, ns: u64, write: impl FnOnce(&mut Message)) {
    push_packet(out, |packet| {
        packet.number(packet::TIMESTAMP, ns);
        packet.number(packet::TIMESTAMP_CLOCK, MONOTONIC);
        packet.message(packet::TRACK_EVENT, write);
    });
}

fn push_clocks(out: &mut Message, trace: &Trace) {
    let clocks = trace.clocks();
    let all = clocks.snapshots().iter().copied();
    let times: Vec<(u64, u64)> = match clocks.snapshots().is_empty() {
        true => vec![(begin(trace), begin(trace))],
        false => all.map(|at| (at.monotonic_ns, at.realtime_ns)).collect(),
    };
    for (monotonic_ns, realtime_ns) in times {
        push_packet(out, |packet| {
            packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
                for (clock, ns) in [
                    (BOOTTIME, monotonic_ns),
                    (MONOTONIC, monotonic_ns),
                    (REALTIME, realtime_ns),
                ] {
                    snapshot.message(1, |reading| {
                        reading.number(1, clock);
                        reading.number(2, ns);
                    });
                }
            });
        });
    }
}

fn push_track(out: &mut Message, track: u64, write: impl FnOnce(&mut Message)) {
    push_packet(out, |packet| {
        packet.message(packet::TRACK_DESCRIPTOR, |descriptor| {
            descriptor.number(1, track);
            write(descriptor);
        });
    });
}

fn push_tracks(out: &mut Message, trace: &Trace) {
    for (at, process) in (0..).zip(trace.processes()) {
        push_track(out, PROCESSES + at, |track| {
            track.message(3, |descriptor| {
                descriptor.number(1, process.process.into());
                for word in process.arguments {
                    descriptor.text(2, &printable(word));
                }
                descriptor.text(6, &printable(process.name));
            });
        });
    }
    let names = ThreadNames::new(trace);
    for (at, thread) in (0..).zip(trace.threads()) {
        push_track(out, THREADS + at, |track| {
            track.message(4, |descriptor| {
                descriptor.number(1, thread.process.into());
                descriptor.number(2, thread.thread.into());
                descriptor.text(5, &names.of(&thread));
            });
        });
    }
    for processor in trace.processors() {
        let number = processor.number;
        push_track(out, PROCESSORS + u64::from(number), |track| {
            track.text(2, &format!("CPU {number}: traced threads"));
        });
    }
    for (at, (name, _)) in (0..).zip(counters(trace)) {
        push_track(out, COUNTERS + at, |track| {
            track.text(2, &name);
            track.message(8, |_| {});
        });
    }
}

/// The numeric fields of markers: `net_rx.len`, with the marker's event and the field's place.
fn counters(trace: &Trace) -> Vec<(String, (u32, usize))> {
    let mut counters: Vec<_> = trace
        .markers()
        .iter()
        .flat_map(|(event, marker)| {
            let fields = marker.fields.iter().enumerate();
            let numeric = fields.filter(|(_, field)| {
                let is_number = matches!(
                    field.kind,
                    FieldKind::Signed(_) | FieldKind::Unsigned(_) | FieldKind::Double
                );
                is_number && field.labels.is_empty()
            });
            numeric.map(move |(at, field)| {
                let name = printable(&format!("{}.{}", marker.name, field.name));
                (name, (event, at))
            })
        })
        .collect();
    sort::by(&mut counters, Ord::cmp);
    counters
}

/// Writes the losses as an event at the beginning of a track of their own.
fn push_losses(out: &mut Message, trace: &Trace) {
    let Some(line) = losses::line(trace) else {
        return;
    };
    push_track(out, LOSSES, |track| track.text(2, "nopal: losses"));
    let ns = trace.clocks().monotonic_ns(begin(trace));
    push_event(out, ns, |event| {
        event.number(track_event::TYPE, kind::INSTANT);
        event.number(track_event::TRACK, LOSSES);
        event.text(track_event::CATEGORY_TEXT, "nopal");
        event.text(track_event::NAME, &line);
    });
}

/// The values that annotations show.
enum Shown<'a> {
    Yes,
    Number(u64),
    Text(&'a str),
}

fn annotate(event: &mut Message, name: &str, value: &Shown) {
    event.message(track_event::ANNOTATION, |annotation| {
        annotation.text(10, name);
        match value {
            Shown::Yes => annotation.number(2, 1),
            Shown::Number(value) => annotation.number(3, *value),
            Shown::Text(value) => annotation.text(6, value),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::synthetic::{Recorder, clock};
    use nopal_trace::{Session, Writer};

    /// Calls that began before records were lost, with so many records of their ends in a packet.
    fn exported(calls: u64, in_a_packet: u64) -> Vec<u8> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("trace");
        let mut writer = Writer::create(&path, Session::default()).unwrap();
        writer.note(&clock(1000)).unwrap();
        let mut recorder = Recorder::new(1, 1, 1000);
        let slot = |depth: u64| 0x7ffd_0000_8008 - 0x40 * depth;
        for depth in 0..calls {
            recorder.entry(1000 + depth, 1 + depth as u32 % 5, slot(depth));
        }
        recorder.lose(1);
        for (done, depth) in (1..).zip((0..calls).rev()) {
            recorder.exit(3000 + done, 1 + depth as u32 % 5, slot(depth));
            if done % in_a_packet == 0 {
                recorder.end_chunk();
            }
        }
        recorder.finish(&mut writer).unwrap();
        writer.note(&clock(9000)).unwrap();
        writer.sync_metadata().unwrap();
        let trace = Trace::open(&path).unwrap();
        let drive = Drive {
            workers: 1,
            ..Drive::default()
        };
        let mut out = Vec::new();
        write(&trace, &Names::new(&trace), &drive, &mut out).unwrap();
        out
    }

    #[test]
    fn calls_that_began_before_are_the_same_wherever_reading_pauses() {
        let whole = exported(100, 100);
        assert!(whole.windows(12).any(|text| text == b"began before"));
        assert!(whole == exported(100, 1));
    }
}
