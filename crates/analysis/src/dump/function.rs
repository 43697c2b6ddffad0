//! The lines of the first function tracer of Linux, and between them the notes that users wrote into the trace.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Write};

use anyhow::Result;
use nopal_symbols::is_harmless;
use nopal_trace::{KernelEvent, Markers, Note, ThreadInfo, Trace};

use super::linux::{AT_ENTRY, Entry, Flags, LineContent, LineWriter, Moment};
use super::{Excerpt, Lines, Look, are_shown};
use crate::calls::{Ending, Frame, Sink};
use crate::filter::Filter;
use crate::kernel_events::{
    KernelNames, Running, TimelineEvent, push_event, thread, with_kernel_events,
};
use crate::markers::{processor_state, push_marker};
use crate::names::ThreadNames;
use crate::sort;
use crate::timeline::{EventSource, ThreadEvents, timeline};

pub fn dump(
    trace: &Trace,
    filter: &Filter,
    excerpt: Excerpt,
    look: Look,
    out: &mut dyn Write,
) -> Result<()> {
    let first = trace.clocks().snapshots().first();
    let begin_ns = first.map_or(0, |snapshot| snapshot.monotonic_ns);
    let writer = LineWriter::new(trace, look, begin_ns);
    let thread_names = ThreadNames::new(trace);
    let threads = filter.threads(trace);
    let all = trace.tasks();
    let mut comms: Vec<Option<String>> = vec![None; threads.len()];
    let mut lines = Lines::new(out);
    let entries = timeline(&threads, |_, thread| {
        let entries = Entries {
            markers: trace.markers(),
            return_address: 0,
            entries: VecDeque::new(),
        };
        ThreadEvents::new(excerpt.packets(thread), entries)
    });
    let kernel = KernelNames::new(trace);
    let running = RefCell::new(Running::default());
    // Earlier events show where threads run.
    let mut timeline_events = with_kernel_events(entries, trace)
        .filter(|(clock, timeline_event)| {
            if let TimelineEvent::System(processor, event) = timeline_event
                && *clock <= excerpt.after
            {
                running.borrow_mut().take(*processor, event);
            }
            excerpt.holds(*clock)
        })
        .peekable();
    let mut texts = texts(trace, excerpt).into_iter().peekable();
    let mut number = 0;
    while let Some((clock, timeline_event)) = timeline_events.next() {
        while let Some((_, text)) = texts.next_if(|(counter, _)| *counter <= clock) {
            write_text(&mut lines, text)?;
        }
        let next = timeline_events.peek().map_or(clock, |(next, _)| *next);
        let text = &mut lines.text;
        match &timeline_event {
            TimelineEvent::Thread(stream, (entry, flags)) => {
                let thread = &threads[*stream];
                let processor = flags.processor;
                let moment = Moment {
                    comm: comms[*stream].get_or_insert_with(|| thread_names.of(thread)),
                    thread: thread.thread,
                    process: thread.process,
                    number,
                    clock,
                    next,
                    flags: Flags {
                        processor: processor.or_else(|| running.borrow().processor(thread.thread)),
                        ..*flags
                    },
                };
                match (look.verbose, entry) {
                    (true, entry) => writer.verbose(text, &moment, entry),
                    (false, LineContent::Call(entry, _)) => writer.simple(text, &moment, entry),
                    (false, LineContent::Text(marker)) => writer.simple_text(text, &moment, marker),
                }
            }
            TimelineEvent::System(processor, event) => {
                let thread = thread(event);
                if !are_shown(filter, &threads, thread) {
                    running.borrow_mut().take(*processor, event);
                    continue;
                }
                let name = running.borrow().name(*processor, event);
                let comm = name.unwrap_or_else(|| known(&all, &thread_names, thread));
                let moment = Moment {
                    comm: &comm,
                    thread,
                    process: 0,
                    number,
                    clock,
                    next,
                    flags: Flags {
                        processor: Some(*processor),
                        kernel: event.flags(),
                        ..Flags::default()
                    },
                };
                let mut content = match event {
                    KernelEvent::Function { .. } => Vec::new(),
                    _ => vec![b' '],
                };
                push_event(&mut content, event, &kernel);
                match look.verbose {
                    true => writer.verbose(text, &moment, &LineContent::Text(content)),
                    false => writer.simple_text(text, &moment, &content),
                }
                running.borrow_mut().take(*processor, event);
            }
        }
        lines.end_line()?;
        number += 1;
    }
    for (_, text) in texts {
        write_text(&mut lines, text)?;
    }
    Ok(lines.flush()?)
}

/// The name of a thread of the trace.
pub fn known(threads: &[ThreadInfo], names: &ThreadNames, thread: u32) -> String {
    match threads.iter().find(|one| one.thread == thread) {
        Some(one) => names.of(one),
        None if thread == 0 => "<idle>".to_string(),
        None => "?".to_string(),
    }
}

/// The notes that users wrote into the trace, in order of time.
pub fn texts(trace: &Trace, excerpt: Excerpt) -> Vec<(u64, &str)> {
    let texts = trace.notes().iter().filter_map(|note| match note {
        Note::Text { counter, text } => Some((*counter, text.as_str())),
        _ => None,
    });
    let mut texts: Vec<_> = texts
        .filter(|(counter, _)| excerpt.holds(*counter))
        .collect();
    sort::by_key(&mut texts, |(counter, _)| *counter);
    texts
}

/// In the form in which the kernel shows lines of `trace_marker`.
pub fn write_text(lines: &mut Lines, text: &str) -> io::Result<()> {
    lines.text.extend_from_slice(b"tracing_mark_write: ");
    let printable = text.chars().filter(|char| is_harmless(*char));
    lines
        .text
        .extend(printable.collect::<String>().into_bytes());
    lines.end_line()
}

/// Calls that begin, and markers.
struct Entries<'a> {
    markers: &'a Markers,
    /// Of the call that begins next; 0 where it is not known.
    return_address: u64,
    entries: VecDeque<(u64, (LineContent, Flags))>,
}

impl Sink for Entries<'_> {
    fn call_site(&mut self, return_address: u64) {
        self.return_address = return_address;
    }

    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let return_address = std::mem::take(&mut self.return_address);
        if let [under @ .., frame] = frames {
            let entry = Entry::of(frame, under, return_address);
            let content = LineContent::Call(entry, AT_ENTRY);
            let moment = (content, Flags::default());
            self.entries.push_back((frame.clock, moment));
        }
        0
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], _frames: &[Frame]) {
        let mut text = vec![b' '];
        let marker = self.markers.get(event);
        push_marker(&mut text, marker, payload);
        let (processor, kernel) = processor_state(marker, payload);
        let flags = Flags {
            processor,
            kernel,
            ..Flags::default()
        };
        let moment = (LineContent::Text(text), flags);
        self.entries.push_back((clock, moment));
    }

    fn leave(&mut self, _frame: &Frame, _ending: Ending, _frames: &[Frame]) {}

    fn lose(&mut self, _frame: &Frame, _clock: u64, _counted: bool) {}

    fn stray(&mut self, _frame: &Frame, _ending: Ending) {}
}

impl EventSource for Entries<'_> {
    type Moment = (LineContent, Flags);

    fn take(&mut self) -> Option<(u64, (LineContent, Flags))> {
        self.entries.pop_front()
    }
}
