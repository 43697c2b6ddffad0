//! The calls and markers of threads.

use std::cmp::Reverse;
use std::collections::HashMap;

use anyhow::Result;
use nopal_abi::Event;
use nopal_analysis::blocks::Port;
use nopal_analysis::calls::{Ending, Frame, Sink, Style};
use nopal_analysis::drive::Worker;
use nopal_analysis::markers::push_value;
use nopal_analysis::names::{Names, printable};
use nopal_analysis::sort;
use nopal_trace::{Clocks, FieldKind, ThreadInfo, Trace, Value};

use super::{
    COMMON_SEQUENCE, COUNTERS, INCREMENTAL, MONOTONIC, PACKET, STATE_CLEARED, STATE_NEEDED, Shown,
    THREADS, annotate, counters, kind, packet, track_event,
};
use crate::pending::Pending;
use crate::protobuf::Message;

/// The numbers and names that all threads share.
pub struct Labels<'a> {
    /// The modules of functions, by number.
    modules: Vec<&'a str>,
    of_function: Vec<u32>,
    /// The numbers that stand for functions, and those of the sequences of threads. The most frequent have the
    /// shortest.
    numbers: Vec<u32>,
    sequences: Vec<u64>,
}

impl<'a> Labels<'a> {
    pub fn new(trace: &Trace, names: &'a Names) -> Labels<'a> {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut modules = Vec::new();
        let functions = names.functions().iter();
        let of_function = functions.map(|function| {
            *numbers.entry(&function.module).or_insert_with(|| {
                modules.push(&*function.module);
                modules.len() as u32 - 1
            })
        });
        let threads = trace.threads();
        let words = |thread: &ThreadInfo| {
            let packets = thread.packets();
            packets.map(|packet| packet.words().len() as u64).sum()
        };
        let sizes: Vec<u64> = threads.iter().map(words).collect();
        let sequences = ranks(&sizes).into_iter();
        Labels {
            numbers: ranks(&calls(&threads, names)),
            sequences: sequences
                .map(|rank| COMMON_SEQUENCE + u64::from(rank))
                .collect(),
            of_function: of_function.collect(),
            modules,
        }
    }
}

/// How often each function occurs in a sample of the packets.
fn calls(threads: &[ThreadInfo], names: &Names) -> Vec<u64> {
    let mut calls = vec![0; names.functions().len()];
    for packet in threads.iter().flat_map(|one| one.packets().step_by(SAMPLE)) {
        for record in packet.records() {
            if let Event::Entry { site, .. } = record.event {
                calls[names.number(site) as usize] += 1;
            }
        }
        packet.release();
    }
    calls
}

/// The place of each count among all, from 1 on, the greatest first.
fn ranks(counts: &[u64]) -> Vec<u32> {
    let mut sorted: Vec<usize> = (0..counts.len()).collect();
    sort::by_key(&mut sorted, |at| Reverse(counts[*at]));
    let mut ranks = vec![0; counts.len()];
    for (rank, at) in (1..).zip(sorted) {
        ranks[at] = rank;
    }
    ranks
}

/// One packet in so many is examined to find the most frequent functions.
const SAMPLE: usize = 8;

/// The names of values, whose numbers are from 1 on.
const VALUES: [&str; 7] = ["arg1", "arg2", "arg3", "arg4", "arg5", "arg6", "result"];
const RESULT: u64 = 7;

/// The most exits without entries that are gathered before they are written.
const STRAYS: usize = 1 << 12;

/// Writes the calls of one thread after the other.
pub struct Calls<'a> {
    names: &'a Names,
    labels: &'a Labels<'a>,
    clocks: &'a Clocks,
    trace: &'a Trace,
    /// Tracks of fields of markers.
    counters: HashMap<(u32, usize), u64>,
    port: Port,
    out: Message,
    stream: usize,
    /// The time of the sequence's last packet.
    last_ns: u64,
    /// The period in which each function and module was last named. A period is a sequence, or its part up to a gap.
    function_named: Vec<u32>,
    module_named: Vec<u32>,
    period: u32,
    /// Whether the names of values are known.
    has_values: bool,
    is_open: bool,
    /// Calls without a known begin whose end has been written, innermost first.
    strays: Vec<Frame>,
    stray_groups: u64,
    /// Frames whose begins are written with the next event: the thread has returned to them, or they are open where the
    /// selected time begins.
    pending: Vec<Pending>,
    /// The begin of the selected time.
    from: u64,
}

impl<'a> Calls<'a> {
    pub fn new(
        trace: &'a Trace,
        names: &'a Names,
        labels: &'a Labels<'a>,
        from: u64,
        port: Port,
    ) -> Calls<'a> {
        let counters = (COUNTERS..).zip(counters(trace));
        Calls {
            names,
            labels,
            clocks: trace.clocks(),
            trace,
            counters: counters.map(|(track, (_, field))| (field, track)).collect(),
            port,
            out: Message::default(),
            stream: 0,
            last_ns: 0,
            function_named: vec![0; names.functions().len()],
            module_named: vec![0; labels.modules.len()],
            period: 0,
            has_values: false,
            is_open: false,
            strays: Vec::new(),
            stray_groups: 0,
            pending: Vec::new(),
            from,
        }
    }

    /// What is left to be written behind all threads.
    pub fn rest(mut self) -> Vec<u8> {
        self.write_strays();
        self.out.bytes
    }

    fn sequence(&self) -> u64 {
        self.labels.sequences[self.stream]
    }

    /// Begins the sequence, or begins it again after a gap, without known names.
    fn open(&mut self, ns: u64, behind_gap: bool) {
        let (sequence, track) = (self.sequence(), THREADS + self.stream as u64);
        self.period += 1;
        self.has_values = false;
        self.is_open = true;
        self.last_ns = ns;
        self.out.message(PACKET, |packet| {
            packet.number(packet::SEQUENCE, sequence);
            packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
                for clock in [MONOTONIC, INCREMENTAL] {
                    snapshot.message(1, |reading| {
                        reading.number(1, clock);
                        reading.number(2, ns);
                        if clock == INCREMENTAL {
                            reading.number(3, 1);
                        }
                    });
                }
            });
            packet.number(packet::SEQUENCE_FLAGS, STATE_CLEARED);
            packet.message(packet::DEFAULTS, |defaults| {
                defaults.message(11, |event| event.number(11, track));
                defaults.number(58, INCREMENTAL);
            });
            match behind_gap {
                true => packet.number(packet::PREVIOUS_PACKET_DROPPED, 1),
                false => packet.number(packet::FIRST_ON_SEQUENCE, 1),
            }
        });
    }

    /// A packet at a value of the counter, not before the last one.
    #[inline(always)]
    fn packet(&mut self, clock: u64, write: impl FnOnce(&mut Message)) {
        self.packet_with(clock, true, write);
    }

    /// `has_names`: readers must check that they know the sequence's names and defaults. They always do, since no
    /// packet is left out.
    #[inline(always)]
    fn packet_with(&mut self, clock: u64, has_names: bool, write: impl FnOnce(&mut Message)) {
        let ns = self.clocks.monotonic_ns(clock);
        if !self.is_open {
            self.open(ns, false);
        }
        let since = ns.saturating_sub(self.last_ns);
        self.last_ns += since;
        let sequence = self.sequence();
        self.out.message(PACKET, |packet| {
            packet.number(packet::TIMESTAMP, since);
            packet.number(packet::SEQUENCE, sequence);
            if has_names {
                packet.number(packet::SEQUENCE_FLAGS, STATE_NEEDED);
            }
            write(packet);
        });
    }

    /// An event that bears a function's name.
    #[inline(always)]
    fn named(&mut self, clock: u64, kind: u64, site: u32, write: impl FnOnce(&mut Message)) {
        if !self.is_open {
            let ns = self.clocks.monotonic_ns(clock);
            self.open(ns, false);
        }
        let (names, labels) = (self.names, self.labels);
        let function = names.number(site) as usize;
        let module = labels.of_function[function] as usize;
        let new_function =
            std::mem::replace(&mut self.function_named[function], self.period) != self.period;
        let new_module =
            std::mem::replace(&mut self.module_named[module], self.period) != self.period;
        let (function_number, module_number) = (labels.numbers[function].into(), module as u64 + 1);
        self.packet(clock, |packet| {
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(track_event::TYPE, kind);
                event.number(track_event::NAME_NUMBER, function_number);
                event.number(track_event::CATEGORY, module_number);
                write(event);
            });
            if new_function || new_module {
                packet.message(packet::INTERNED_DATA, |data| {
                    if new_module {
                        intern(data, 1, module_number, labels.modules[module]);
                    }
                    if new_function {
                        let name = &names.functions()[function].name;
                        intern(data, 2, function_number, name);
                    }
                });
            }
        });
    }

    #[inline(always)]
    fn end(&mut self, clock: u64, result: Option<u64>, write: impl FnOnce(&mut Message)) {
        if result.is_some() {
            self.name_values(clock);
        }
        self.packet_with(clock, result.is_some(), |packet| {
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(track_event::TYPE, kind::END);
                if let Some(result) = result {
                    annotate_value(event, RESULT, result);
                }
                write(event);
            });
        });
    }

    /// Writes the names of arguments and results, before an event at `clock`.
    fn name_values(&mut self, clock: u64) {
        if !self.is_open {
            let ns = self.clocks.monotonic_ns(clock);
            self.open(ns, false);
        }
        if std::mem::replace(&mut self.has_values, true) {
            return;
        }
        let sequence = self.sequence();
        self.out.message(PACKET, |packet| {
            packet.number(packet::SEQUENCE, sequence);
            packet.number(packet::SEQUENCE_FLAGS, STATE_NEEDED);
            packet.message(packet::INTERNED_DATA, |data| {
                for (number, name) in (1..).zip(VALUES) {
                    intern(data, 3, number, name);
                }
            });
        });
    }

    /// Writes the begins of pending frames, before an event at `clock`.
    fn begin_pending(&mut self, clock: u64) {
        for pending in std::mem::take(&mut self.pending) {
            let remark = match pending.is_resumed {
                true => "resumed",
                false => "began before",
            };
            let (site, clock) = (pending.frame.site(), pending.begin(clock));
            self.named(clock, kind::BEGIN, site, |event| {
                annotate(event, remark, &Shown::Yes);
            });
        }
    }

    /// Drops the frame if it is pending, and returns whether it was.
    fn drop_pending(&mut self) -> bool {
        self.pending.pop().is_some()
    }

    /// Writes the begins of calls that had begun before the records: outermost first, at a time before all events in
    /// them.
    fn write_strays(&mut self) {
        if self.strays.is_empty() {
            return;
        }
        self.stray_groups += 1;
        let (sequence, track) = (self.sequence(), THREADS + self.stream as u64);
        for frame in std::mem::take(&mut self.strays).iter().rev() {
            let ns = self.clocks.monotonic_ns(frame.clock);
            let function = self.names.function(frame.site());
            let name = &function.name;
            let before = ns.saturating_sub(self.stray_groups);
            self.out.message(PACKET, |packet| {
                packet.number(packet::TIMESTAMP, before);
                packet.number(packet::TIMESTAMP_CLOCK, MONOTONIC);
                packet.number(packet::SEQUENCE, sequence);
                packet.message(packet::TRACK_EVENT, |event| {
                    event.number(track_event::TYPE, kind::BEGIN);
                    event.number(track_event::TRACK, track);
                    event.text(track_event::CATEGORY_TEXT, &function.module);
                    event.text(track_event::NAME, name);
                    annotate(event, "began before", &Shown::Yes);
                });
            });
        }
    }
}

/// A name's number and the name, in `InternedData`.
fn intern(data: &mut Message, field: u32, number: u64, name: &str) {
    data.message(field, |entry| {
        entry.number(1, number);
        entry.text(2, name);
    });
}

/// An argument or a result.
fn annotate_value(event: &mut Message, name: u64, value: u64) {
    event.message(track_event::ANNOTATION, |annotation| {
        annotation.number(1, name);
        annotation.number(7, value);
    });
}

impl Sink for Calls<'_> {
    fn enter_left_out(&mut self, _frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        0
    }

    #[inline(always)]
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let Some(frame) = frames.last() else {
            return 0;
        };
        if frame.clock <= self.from && frame.style() != Style::Only {
            self.pending.push(Pending::open(frame, self.from));
            return 0;
        }
        if !self.pending.is_empty() {
            self.begin_pending(frame.clock);
        }
        let kind = match frame.style() {
            Style::Only => kind::INSTANT,
            _ => kind::BEGIN,
        };
        if arguments.is_some() {
            self.name_values(frame.clock);
        }
        self.named(frame.clock, kind, frame.site(), |event| {
            for (number, value) in (1..).zip(arguments.into_iter().flatten()) {
                annotate_value(event, number, value);
            }
        });
        0
    }

    #[inline(always)]
    fn leave(&mut self, _frame: &Frame, ending: Ending, _frames: &[Frame]) {
        if !self.pending.is_empty() {
            self.begin_pending(ending.clock);
        }
        self.end(ending.clock, ending.result, |event| {
            if ending.unwound {
                annotate(event, "unwound", &Shown::Yes);
            }
        });
    }

    fn lose(&mut self, _frame: &Frame, clock: u64, counted: bool) {
        if Pending::goes_on(&self.pending, clock) {
            self.begin_pending(clock);
        }
        if counted && !self.drop_pending() {
            self.end(clock, None, |event| {
                annotate(event, "unfinished", &Shown::Yes)
            });
        }
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        if frame.clock >= ending.clock {
            return;
        }
        self.end(ending.clock, None, |_| {});
        self.strays.push(*frame);
        if self.strays.len() >= STRAYS {
            self.write_strays();
        }
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], _frames: &[Frame]) {
        self.begin_pending(clock);
        let Some(marker) = self.trace.markers().get(event) else {
            return;
        };
        let values = marker.values(payload).unwrap_or_default();
        self.packet(clock, |packet| {
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(track_event::TYPE, kind::INSTANT);
                event.text(track_event::CATEGORY_TEXT, "marker");
                event.text(track_event::NAME, &printable(&marker.name));
                let fields = marker.fields.iter().zip(&values);
                for (field, value) in fields.filter(|(field, _)| field.kind != FieldKind::Missing) {
                    let mut text = Vec::new();
                    push_value(&mut text, field, *value);
                    let text = printable(&String::from_utf8_lossy(&text));
                    annotate(event, &printable(&field.name), &Shown::Text(&text));
                }
            });
        });
        for (at, value) in values.iter().enumerate() {
            let Some(&track) = self.counters.get(&(event, at)) else {
                continue;
            };
            let (field, number) = match *value {
                Value::Signed(value) => (track_event::COUNTER_VALUE, value.cast_unsigned()),
                Value::Unsigned(value) if i64::try_from(value).is_ok() => {
                    (track_event::COUNTER_VALUE, value)
                }
                Value::Unsigned(value) => {
                    (track_event::DOUBLE_COUNTER_VALUE, (value as f64).to_bits())
                }
                Value::Double(value) => (track_event::DOUBLE_COUNTER_VALUE, value.to_bits()),
                Value::Unread | Value::Bytes(..) => continue,
            };
            self.packet(clock, |packet| {
                packet.message(packet::TRACK_EVENT, |event| {
                    event.number(track_event::TYPE, kind::COUNTER);
                    event.number(track_event::TRACK, track);
                    match field {
                        track_event::COUNTER_VALUE => event.number(field, number),
                        _ => event.fixed(field, number),
                    }
                });
            });
        }
    }

    fn missing(&mut self, _clock: u64, ticks: u64) {
        self.write_strays();
        self.pending.clear();
        if !self.is_open {
            return;
        }
        let ns = self.clocks.duration_ns(ticks);
        self.open(self.last_ns, true);
        self.packet(0, |packet| {
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(track_event::TYPE, kind::INSTANT);
                event.text(track_event::CATEGORY_TEXT, "nopal");
                event.text(track_event::NAME, "records are missing");
                annotate(event, "for ns", &Shown::Number(ns));
            });
        });
    }

    /// Their slices end where the thread left them: other calls may begin, which are not in them.
    fn aside(&mut self, frames: &[Frame]) {
        for frame in frames {
            if frame.style() != Style::Only && !self.drop_pending() {
                self.end(0, None, |event| annotate(event, "left", &Shown::Yes));
            }
        }
    }

    fn resume(&mut self, frames: &[Frame]) {
        let timed = frames.iter().filter(|frame| frame.style() != Style::Only);
        self.pending.extend(timed.map(Pending::resumed));
    }

    fn dismiss(&mut self, frame: &Frame, counted: bool) {
        if counted && frame.style() != Style::Only {
            self.drop_pending();
        }
    }
}

impl Worker for Calls<'_> {
    fn begin(&mut self, stream: usize, _thread: &ThreadInfo) {
        self.write_strays();
        self.stream = stream;
        self.is_open = false;
        self.stray_groups = 0;
        self.pending.clear();
    }

    fn pause(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.out.bytes);
        self.out.bytes = self.port.send(bytes)?;
        Ok(())
    }
}
