//! OpenTelemetry's protocol: a `TracesData` message, as collectors take it from files and by HTTP.
//!
//! Spans are the calls of chosen functions, and the cases of sections. Not every call is one: a collector needs
//! hundreds of bytes for a span. Numbers of fields are those of `opentelemetry/proto/trace/v1/trace.proto`.

use std::collections::HashMap;
use std::io::Write;

use anyhow::{Context, Result, bail};
use nopal_analysis::blocks::{self, Port};
use nopal_analysis::calls::{Ending, Frame, Sink};
use nopal_analysis::drive::{Drive, Times, Worker};
use nopal_analysis::losses;
use nopal_analysis::markers::push_value;
use nopal_analysis::names::{Names, ThreadNames, printable};
use nopal_analysis::sort;
use nopal_analysis::tracers::{Tracer, of_trace};
use nopal_trace::{FieldKind, ThreadInfo, Trace};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::LeftOut;
use crate::protobuf::Message;
use crate::requests::{RequestBegin, Requests};

/// In `Span`.
mod span {
    pub const TRACE: u32 = 1;
    pub const SPAN: u32 = 2;
    pub const PARENT: u32 = 4;
    pub const NAME: u32 = 5;
    pub const KIND: u32 = 6;
    pub const START: u32 = 7;
    pub const END: u32 = 8;
    pub const ATTRIBUTE: u32 = 9;
    pub const EVENT: u32 = 11;
}

const INTERNAL: u64 = 1;

/// The most open spans of a thread, and the most events of a span; further ones are counted.
const MOST_OPEN: usize = 1 << 12;
const MOST_EVENTS: usize = 1 << 10;

pub fn write(
    trace: &Trace,
    names: &Names,
    spans: &[String],
    sections: &[String],
    begin: Option<&RequestBegin>,
    drive: &Drive,
    out: &mut dyn Write,
) -> Result<LeftOut> {
    if spans.is_empty() && sections.is_empty() {
        bail!(
            "not every call can be a span: select functions with --span, or sections with --section FROM..TO"
        );
    }
    for section in sections {
        write_section(trace, names, section, out)?;
    }
    if spans.is_empty() {
        return Ok(LeftOut::default());
    }
    let mut chosen = vec![false; names.functions().len()];
    for pattern in spans {
        for number in names.wanted(pattern)? {
            chosen[number as usize] = true;
        }
    }
    let thread_names = ThreadNames::new(trace);
    let workers = blocks::write(trace, drive, out, |port| Spans {
        trace,
        names,
        chosen: &chosen,
        thread_names: &thread_names,
        requests: Requests::new(trace, names, begin),
        port,
        process: 0,
        thread: 0,
        name: String::new(),
        open: Vec::new(),
        spans: Message::default(),
        left_out: LeftOut::default(),
    })?;
    let mut left_out = LeftOut::default();
    workers
        .iter()
        .for_each(|worker| left_out.add(&worker.left_out));
    Ok(left_out)
}

/// The identity of a span or a trace: a hash of its content, so that the same trace always has the same identities.
fn span_id(trace: &Trace, thread: u64, clock: u64, site: u32) -> [u8; 8] {
    let text = format!("{} {thread} {clock} {site}", trace.session().uuid);
    xxh3_64(text.as_bytes()).max(1).to_be_bytes()
}

/// A request's own identity if it is one of OpenTelemetry (32 hexadecimal digits), else a hash of it, which is the same
/// in all services.
fn trace_id(identity: &str) -> [u8; 16] {
    match u128::from_str_radix(identity, 16) {
        Ok(number) if identity.len() == 32 && number != 0 => number,
        _ => xxh3_128(identity.as_bytes()).max(1),
    }
    .to_be_bytes()
}

fn push_attribute(message: &mut Message, field: u32, key: &str, write: impl FnOnce(&mut Message)) {
    message.message(field, |pair| {
        pair.text(1, key);
        pair.message(2, write);
    });
}

/// A message of spans that one process made.
fn push_resource(out: &mut Message, trace: &Trace, process: u32, spans: &[u8]) {
    let session = trace.session();
    let name = trace.processes().into_iter().rev();
    let name = name
        .filter(|one| one.process == process)
        .map(|one| printable(one.name))
        .next();
    out.message(1, |resource_spans| {
        resource_spans.message(1, |resource| {
            push_attribute(resource, 1, "service.name", |value| {
                value.text(1, name.as_deref().unwrap_or("unknown_service"));
            });
            push_attribute(resource, 1, "host.name", |value| {
                value.text(1, &printable(&session.hostname));
            });
            push_attribute(resource, 1, "process.pid", |value| {
                value.number(3, process.into());
            });
            push_attribute(resource, 1, "nopal.trace", |value| {
                value.text(1, &session.uuid)
            });
            if let Some(line) = losses::line(trace) {
                push_attribute(resource, 1, "nopal.losses", |value| value.text(1, &line));
            }
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| scope.text(1, "nopal"));
            scope_spans.bytes.extend_from_slice(spans);
        });
    });
}

/// The cases of a section, each a trace of its own.
fn write_section(trace: &Trace, names: &Names, text: &str, out: &mut dyn Write) -> Result<()> {
    let tracer = Tracer::parse(text).with_context(|| format!("{text}: a section is FROM..TO"))?;
    let threads = trace.threads();
    let clocks = trace.clocks();
    let mut by_process: HashMap<u32, Message> = HashMap::new();
    of_trace(trace, names, &tracer, |case| {
        let thread = threads.get(case.begin_thread as usize);
        let process = thread.map_or(0, |thread| thread.process);
        let (begin, end) = (case.begin, case.end);
        let id = span_id(
            trace,
            u64::from(case.begin_thread) << 32 | u64::from(case.end_thread),
            begin,
            u32::MAX,
        );
        let spans = by_process.entry(process).or_default();
        spans.message(2, |one| {
            one.data(span::TRACE, &trace_id(&format!("{text} {id:?}")));
            one.data(span::SPAN, &id);
            one.text(span::NAME, &printable(text));
            one.number(span::KIND, INTERNAL);
            one.fixed(span::START, clocks.realtime_ns(begin));
            one.fixed(span::END, clocks.realtime_ns(end));
            for (key, at) in [
                ("thread.id", case.begin_thread),
                ("nopal.end.thread.id", case.end_thread),
            ] {
                if let Some(thread) = threads.get(at as usize) {
                    push_attribute(one, span::ATTRIBUTE, key, |value| {
                        value.number(3, thread.thread.into());
                    });
                }
            }
        });
    })?;
    let mut processes: Vec<_> = by_process.into_iter().collect();
    sort::by_key(&mut processes, |(process, _)| *process);
    for (process, spans) in processes {
        let mut message = Message::default();
        push_resource(&mut message, trace, process, &spans.bytes);
        out.write_all(&message.bytes)?;
    }
    Ok(())
}

/// A span under way.
struct Open {
    clock: u64,
    site: u32,
    /// Its call has ended before the selected time, and is only the parent of others.
    has_ended: bool,
    id: [u8; 8],
    parent: Option<[u8; 8]>,
    trace: [u8; 16],
    /// The written events, and the number of others.
    events: Message,
    event_count: usize,
}

impl Open {
    fn is(&self, frame: &Frame) -> bool {
        (self.clock, self.site) == (frame.clock, frame.site())
    }
}

struct Spans<'a> {
    trace: &'a Trace,
    names: &'a Names,
    /// By function number.
    chosen: &'a [bool],
    thread_names: &'a ThreadNames<'a>,
    requests: Requests<'a>,
    port: Port,
    process: u32,
    thread: u32,
    name: String,
    /// Outermost first; also those that were set aside.
    open: Vec<Open>,
    spans: Message,
    left_out: LeftOut,
}

impl Spans<'_> {
    fn is_shown(&self, site: u32) -> bool {
        self.chosen[self.names.number(site) as usize]
    }

    /// Takes the span of a call from the open ones.
    fn take(&mut self, frame: &Frame) -> Option<Open> {
        if !self.is_shown(frame.site()) {
            return None;
        }
        let at = self.open.iter().rposition(|open| open.is(frame))?;
        Some(self.open.remove(at))
    }

    /// Begins the span of a call, the last of `frames`, of the request `note`.
    fn open(&mut self, frame: &Frame, note: u32, frames: &[Frame], has_ended: bool) {
        let id = span_id(self.trace, self.thread.into(), frame.clock, frame.site());
        let on_stack = |open: &&Open| frames.iter().any(|frame| open.is(frame));
        let parent = self.open.iter().rev().find(on_stack);
        let trace = match (note, parent) {
            (1.., _) => trace_id(self.requests.identity(note)),
            (0, Some(parent)) => parent.trace,
            (0, None) => trace_id(&format!("{} {id:?}", self.trace.session().uuid)),
        };
        let parent = parent
            .filter(|parent| parent.trace == trace)
            .map(|parent| parent.id);
        self.open.push(Open {
            clock: frame.clock,
            site: frame.site(),
            has_ended,
            id,
            parent,
            trace,
            events: Message::default(),
            event_count: 0,
        });
    }

    fn end(&mut self, frame: &Frame, clock: u64, how: Option<&str>) {
        let Some(open) = self.take(frame) else {
            return;
        };
        let clocks = self.trace.clocks();
        let function = self.names.function(frame.site());
        self.spans.message(2, |one| {
            one.data(span::TRACE, &open.trace);
            one.data(span::SPAN, &open.id);
            if let Some(parent) = &open.parent {
                one.data(span::PARENT, parent);
            }
            one.text(span::NAME, &function.name);
            one.number(span::KIND, INTERNAL);
            one.fixed(span::START, clocks.realtime_ns(frame.clock));
            one.fixed(span::END, clocks.realtime_ns(clock));
            let mut text = |key: &str, value: &str| {
                push_attribute(one, span::ATTRIBUTE, key, |shown| shown.text(1, value));
            };
            text("code.function.name", &function.name);
            text("code.file.path", &function.path);
            text("thread.name", &self.name);
            if let Some(how) = how {
                text("nopal.state", how);
            }
            push_attribute(one, span::ATTRIBUTE, "thread.id", |value| {
                value.number(3, self.thread.into());
            });
            one.bytes.extend_from_slice(&open.events.bytes);
            let dropped = open.event_count.saturating_sub(MOST_EVENTS);
            if dropped > 0 {
                one.number(12, dropped as u64);
            }
        });
    }
}

impl Sink for Spans<'_> {
    fn enter_left_out(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        self.requests.enter(frames, arguments)
    }

    #[inline(always)]
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let note = self.requests.enter(frames, arguments);
        let Some(frame) = frames.last() else {
            return note;
        };
        if !self.is_shown(frame.site()) {
            return note;
        }
        if frame.style() == nopal_analysis::calls::Style::Only {
            self.left_out.entries += 1;
            return note;
        }
        let is_live = |open: &&Open| !open.has_ended;
        if self.open.len() >= MOST_OPEN && self.open.iter().filter(is_live).count() >= MOST_OPEN {
            self.left_out.deep += 1;
            return note;
        }
        self.open(frame, note, frames, false);
        note
    }

    fn note_of_caller(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let note = self.requests.enter(frames, arguments);
        if let Some(frame) = frames.last()
            && self.is_shown(frame.site())
            && frame.style() != nopal_analysis::calls::Style::Only
            && !self.open.iter().any(|open| open.is(frame))
        {
            self.open(frame, note, frames, true);
        }
        note
    }

    #[inline(always)]
    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.end(frame, ending.clock, ending.unwound.then_some("unwound"));
        self.requests.leave(frame);
    }

    fn dismiss(&mut self, frame: &Frame, _counted: bool) {
        self.take(frame);
        self.requests.leave(frame);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        self.end(frame, clock, Some("unfinished"));
        self.requests.leave(frame);
    }

    fn stray(&mut self, frame: &Frame, _ending: Ending) {
        if self.is_shown(frame.site()) {
            self.left_out.began_before += 1;
        }
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], frames: &[Frame]) {
        self.requests.mark(event, payload, frames);
        let open = self.open.iter_mut().rfind(|open| !open.has_ended);
        let (Some(marker), Some(open)) = (self.trace.markers().get(event), open) else {
            return;
        };
        open.event_count += 1;
        if open.event_count > MOST_EVENTS {
            return;
        }
        let values = marker.values(payload).unwrap_or_default();
        let ns = self.trace.clocks().realtime_ns(clock);
        open.events.message(span::EVENT, |shown| {
            shown.fixed(1, ns);
            shown.text(2, &printable(&marker.name));
            let fields = marker.fields.iter().zip(values);
            for (field, value) in fields.filter(|(field, _)| field.kind != FieldKind::Missing) {
                let mut text = Vec::new();
                push_value(&mut text, field, value);
                push_attribute(shown, 3, &printable(&field.name), |value| {
                    value.text(1, &printable(&String::from_utf8_lossy(&text)));
                });
            }
        });
    }
}

impl Worker for Spans<'_> {
    fn times(&self) -> Times {
        Times::Whole
    }

    fn begin(&mut self, _stream: usize, thread: &ThreadInfo) {
        self.open.clear();
        self.requests.begin();
        (self.process, self.thread) = (thread.process, thread.thread);
        self.name = self.thread_names.of(thread);
    }

    fn pause(&mut self) -> Result<()> {
        let mut message = Message::default();
        if !self.spans.bytes.is_empty() {
            push_resource(&mut message, self.trace, self.process, &self.spans.bytes);
            self.spans.bytes.clear();
        }
        self.port.send(message.bytes)?;
        Ok(())
    }
}
