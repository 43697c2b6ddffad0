//! The trace event format of Chrome, which Perfetto reads.
//!
//! A call is one complete event. A call without an end is shown for the time in which it is known to have run.

use std::io::Write;

use anyhow::Result;
use nopal_trace::{Clocks, FieldKind, Markers, ThreadInfo, Trace};

use super::tracks;
use crate::blocks::{self, Port};
use crate::calls::{Arguments, Ending, Frame, Sink, Style};
use crate::drive::{Drive, Times, Worker};
use crate::losses;
use crate::markers::push_value;
use crate::names::{Names, ThreadNames};
use crate::text::{push_fraction, push_hex_short, push_json_string, push_u64};

pub fn dump(trace: &Trace, drive: &Drive, out: &mut dyn Write) -> Result<()> {
    let names = Names::new(trace);
    let threads = trace.threads();
    let clocks = trace.clocks();
    let packets = threads.iter().filter_map(|thread| thread.packets().next());
    let processors = trace.processors();
    let of_processors = processors.filter_map(|processor| processor.packets().next());
    let begin = packets
        .chain(of_processors)
        .map(|packet| packet.clock_begin())
        .min();
    let begin = begin.unwrap_or(0);
    let labels: Vec<Vec<u8>> = names
        .functions()
        .iter()
        .map(|function| label(&function.name, &function.module))
        .collect();
    let mut text = b"{\"traceEvents\":[".to_vec();
    push_threads(&mut text, trace);
    out.write_all(&text)?;
    blocks::write(trace, drive, out, |port| Formatter {
        names: &names,
        markers: trace.markers(),
        has_least: drive.filter.is_some_and(|filter| filter.least_ns > 0),
        labels: &labels,
        clocks,
        begin_ns: clocks.monotonic_ns(begin),
        port,
        thread: Vec::new(),
        text: Vec::new(),
        arguments: Arguments::default(),
    })?;
    let is_first = threads.is_empty() && trace.processes().is_empty();
    tracks::push_processors(trace, clocks.monotonic_ns(begin), is_first, out)?;
    let mut text =
        b"\n],\"displayTimeUnit\":\"ns\",\"otherData\":{\"begin_monotonic_ns\":".to_vec();
    push_u64(&mut text, clocks.monotonic_ns(begin));
    text.extend_from_slice(b",\"begin_realtime_ns\":");
    push_u64(&mut text, clocks.realtime_ns(begin));
    if let Some(losses) = losses::json(trace) {
        text.extend_from_slice(b",\"losses\":");
        text.extend_from_slice(losses.as_bytes());
    }
    text.extend_from_slice(b"}}\n");
    Ok(out.write_all(&text)?)
}

/// Names of processes and threads. All other events follow these, and begin with a comma.
fn push_threads(text: &mut Vec<u8>, trace: &Trace) {
    let mut first = true;
    let mut push = |what: &str, process: u32, thread: u32, name: &str| {
        text.extend_from_slice(if first { b"\n" } else { b",\n" });
        first = false;
        text.extend_from_slice(
            format!("{{\"ph\":\"M\",\"pid\":{process},\"tid\":{thread},").as_bytes(),
        );
        text.extend_from_slice(format!("\"name\":\"{what}\",\"args\":{{\"name\":").as_bytes());
        push_json_string(text, name);
        text.extend_from_slice(b"}}");
    };
    for process in trace.processes() {
        push(
            "process_name",
            process.process,
            process.process,
            process.name,
        );
    }
    let names = ThreadNames::new(trace);
    for thread in trace.threads() {
        push(
            "thread_name",
            thread.process,
            thread.thread,
            &names.of(&thread),
        );
    }
}

/// The end of each of a function's events, without the brace.
fn label(function: &str, module: &str) -> Vec<u8> {
    let mut label = b",\"name\":".to_vec();
    push_json_string(&mut label, function);
    label.extend_from_slice(b",\"cat\":");
    push_json_string(&mut label, module);
    label
}

/// Formats threads. A frame's note is that of its arguments.
struct Formatter<'a> {
    names: &'a Names,
    markers: &'a Markers,
    /// Calls without a known duration are left out.
    has_least: bool,
    labels: &'a [Vec<u8>],
    clocks: &'a Clocks,
    begin_ns: u64,
    port: Port,
    /// The text in each of the thread's events after the kind.
    thread: Vec<u8>,
    text: Vec<u8>,
    arguments: Arguments,
}

impl Formatter<'_> {
    /// An event's beginning up to its time; returns that.
    #[inline(always)]
    fn open(&mut self, kind: u8, clock: u64) -> u64 {
        let ns = self
            .clocks
            .monotonic_ns(clock)
            .saturating_sub(self.begin_ns);
        self.text.extend_from_slice(b",\n{\"ph\":\"");
        self.text.push(kind);
        self.text.extend_from_slice(&self.thread);
        push_fraction(&mut self.text, ns);
        ns
    }

    #[inline(always)]
    fn push_label(&mut self, site: u32) {
        self.text
            .extend_from_slice(&self.labels[self.names.number(site) as usize]);
    }

    #[inline(always)]
    fn close(&mut self, frame: &Frame, ending: Ending, remark: &[u8]) {
        let Ending {
            clock,
            result,
            unwound,
        } = ending;
        let arguments = self.arguments.take(frame.note);
        let begin = self.open(b'X', frame.clock);
        let end = self
            .clocks
            .monotonic_ns(clock)
            .saturating_sub(self.begin_ns);
        self.text.extend_from_slice(b",\"dur\":");
        push_fraction(&mut self.text, end.saturating_sub(begin));
        self.push_label(frame.site());
        if unwound {
            self.text.extend_from_slice(b",\"cname\":\"bad\"");
        }
        let mut members = 0;
        let mut begin_member = |text: &mut Vec<u8>, name: &[u8]| {
            text.extend_from_slice(if members == 0 { b",\"args\":{" } else { b"," });
            text.extend_from_slice(name);
            members += 1;
        };
        if let Some(arguments) = arguments {
            begin_member(&mut self.text, b"\"arguments\":[");
            push_values(&mut self.text, &arguments);
            self.text.push(b']');
        }
        if let Some(result) = result {
            begin_member(&mut self.text, b"\"result\":");
            push_values(&mut self.text, &[result]);
        }
        if !remark.is_empty() {
            begin_member(&mut self.text, remark);
        }
        self.text
            .extend_from_slice(if members == 0 { b"}" } else { b"}}" });
    }
}

fn push_values(text: &mut Vec<u8>, values: &[u64]) {
    for (index, value) in values.iter().enumerate() {
        text.extend_from_slice(if index == 0 { b"\"0x" } else { b",\"0x" });
        push_hex_short(text, *value);
        text.push(b'"');
    }
}

impl Sink for Formatter<'_> {
    fn enter_left_out(&mut self, _frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        0
    }

    #[inline(always)]
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let Some(frame) = frames.last() else {
            return 0;
        };
        if frame.style() != Style::Only {
            return arguments.map_or(0, |arguments| self.arguments.keep(arguments));
        }
        if self.has_least {
            return 0;
        }
        self.open(b'i', frame.clock);
        self.push_label(frame.site());
        self.text.extend_from_slice(b",\"s\":\"t\"");
        if let Some(arguments) = arguments {
            self.text.extend_from_slice(b",\"args\":{\"arguments\":[");
            push_values(&mut self.text, &arguments);
            self.text.extend_from_slice(b"]}");
        }
        self.text.push(b'}');
        0
    }

    fn dismiss(&mut self, frame: &Frame, _counted: bool) {
        self.arguments.take(frame.note);
    }

    #[inline(always)]
    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.close(frame, ending, b"");
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        let ending = Ending {
            clock,
            result: None,
            unwound: false,
        };
        self.close(frame, ending, b"\"unfinished\":true");
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        if frame.clock < ending.clock {
            let remark = b"\"began_before\":true";
            let ending = Ending {
                result: None,
                unwound: false,
                ..ending
            };
            self.close(frame, ending, remark);
        }
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], _frames: &[Frame]) {
        let Some(marker) = self.markers.get(event) else {
            return;
        };
        self.open(b'i', clock);
        self.text
            .extend_from_slice(b",\"s\":\"t\",\"cat\":\"marker\",\"name\":");
        push_json_string(&mut self.text, &marker.name);
        self.text.extend_from_slice(b",\"args\":{");
        let values = marker.values(payload).into_iter().flatten();
        let fields = marker.fields.iter().zip(values);
        let shown = fields.filter(|(field, _)| field.kind != FieldKind::Missing);
        for (index, (field, value)) in shown.enumerate() {
            if index > 0 {
                self.text.push(b',');
            }
            push_json_string(&mut self.text, &field.name);
            self.text.push(b':');
            let mut shown = Vec::new();
            push_value(&mut shown, field, value);
            push_json_string(&mut self.text, &String::from_utf8_lossy(&shown));
        }
        self.text.extend_from_slice(b"}}");
    }
}

impl Worker for Formatter<'_> {
    fn times(&self) -> Times {
        Times::Whole
    }

    fn begin(&mut self, _stream: usize, thread: &ThreadInfo) {
        let (process, thread) = (thread.process, thread.thread);
        self.thread = format!("\",\"pid\":{process},\"tid\":{thread},\"ts\":").into_bytes();
    }

    fn pause(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.text);
        self.text = self.port.send(text)?;
        Ok(())
    }
}
