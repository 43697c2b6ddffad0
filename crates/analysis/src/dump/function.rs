//! The lines of the first function tracer of Linux.

use std::collections::VecDeque;
use std::io::Write;

use anyhow::Result;
use nopal_trace::{Clocks, ThreadInfo, Trace};

use super::{Excerpt, Lines, Look};
use crate::addresses::Addresses;
use crate::calls::{Ending, Frame, Sink};
use crate::names::{Names, ThreadNames};
use crate::text::{push_fraction, push_hex, push_hex_short, push_padded, push_u64};
use crate::timeline::{Teller, Telling, timeline};

pub fn dump(trace: &Trace, excerpt: Excerpt, look: Look, out: &mut dyn Write) -> Result<()> {
    let writer = LineWriter {
        look,
        names: Names::new(trace),
        addresses: Addresses::new(trace),
        clocks: trace.clocks(),
        begin_ns: trace
            .clocks()
            .snapshots()
            .first()
            .map_or(0, |snapshot| snapshot.monotonic_ns),
    };
    let thread_names = ThreadNames::new(trace);
    let threads = trace.threads();
    let mut comms: Vec<Option<String>> = vec![None; threads.len()];
    let mut lines = Lines::new(out);
    let entries = timeline(&threads, |_, thread| {
        Telling::new(excerpt.packets(thread), Entries::default())
    });
    let mut entries = entries
        .filter(|(_, clock, _)| excerpt.holds(*clock))
        .peekable();
    let mut number = 0;
    while let Some((stream, clock, entry)) = entries.next() {
        let thread = &threads[stream];
        let comm = comms[stream].get_or_insert_with(|| thread_names.of(thread));
        let moment = Moment {
            comm,
            thread,
            number,
            clock,
            next: entries.peek().map_or(clock, |(_, next, _)| *next),
        };
        if look.verbose {
            writer.verbose(&mut lines.text, &moment, &entry);
        } else {
            writer.simple(&mut lines.text, &moment, &entry);
        }
        lines.end_line()?;
        number += 1;
    }
    Ok(lines.flush()?)
}

struct Moment<'a> {
    comm: &'a str,
    thread: &'a ThreadInfo<'a>,
    /// Of the line, from 0.
    number: u64,
    clock: u64,
    /// The clock of the next line.
    next: u64,
}

struct LineWriter<'a> {
    look: Look,
    names: Names,
    addresses: Addresses,
    clocks: &'a Clocks,
    begin_ns: u64,
}

impl LineWriter<'_> {
    fn simple(&self, text: &mut Vec<u8>, moment: &Moment, entry: &Entry) {
        text.extend_from_slice(b"CPU -: ");
        text.extend_from_slice(moment.comm.as_bytes());
        text.push(b':');
        push_u64(text, u64::from(moment.thread.thread));
        text.push(b' ');
        self.push_place(text, moment, entry.site, "+0x0/0x");
        text.extend_from_slice(b" <-- ");
        self.push_caller(text, moment, entry);
    }

    /// `comm pid CPU flags preemption number [microseconds] since the begin (+until the next): function (caller)`.
    fn verbose(&self, text: &mut Vec<u8>, moment: &Moment, entry: &Entry) {
        push_padded(text, 16, |text| {
            text.extend_from_slice(moment.comm.as_bytes());
        });
        text.push(b' ');
        push_padded(text, 5, |text| {
            push_u64(text, u64::from(moment.thread.thread))
        });
        text.extend_from_slice(b" - - - ");
        push_hex_digits(text, moment.number);
        let now = self.clocks.monotonic_ns(moment.clock);
        let next = self.clocks.monotonic_ns(moment.next);
        text.extend_from_slice(b" [");
        push_hex_digits(text, now / 1000);
        text.extend_from_slice(b"] ");
        push_fraction(text, now.saturating_sub(self.begin_ns) / 1000);
        text.extend_from_slice(b"ms (+");
        push_fraction(text, next.saturating_sub(now) / 1000);
        text.extend_from_slice(b"ms): ");
        self.push_place(text, moment, entry.site, "+0x0/0x");
        text.extend_from_slice(b" (");
        self.push_caller(text, moment, entry);
        text.push(b')');
    }

    fn push_caller(&self, text: &mut Vec<u8>, moment: &Moment, entry: &Entry) {
        match entry.caller {
            Some(caller) => self.push_place(text, moment, caller, "+-/0x"),
            None => text.push(b'-'),
        }
    }

    fn push_place(&self, text: &mut Vec<u8>, moment: &Moment, site: u32, offset: &str) {
        let function = self.names.function(site);
        text.extend_from_slice(function.name.as_bytes());
        text.extend_from_slice(offset.as_bytes());
        push_hex_short(text, function.size);
        if self.look.addresses {
            let process = moment.thread.process;
            text.extend_from_slice(b" <");
            push_hex_short(text, self.addresses.address(process, site, moment.clock));
            text.push(b'>');
        }
    }
}

/// Eight hexadecimal digits, the lower ones.
fn push_hex_digits(text: &mut Vec<u8>, value: u64) {
    let begin = text.len();
    push_hex(text, value);
    text.drain(begin..begin + 8);
}

struct Entry {
    site: u32,
    caller: Option<u32>,
}

#[derive(Default)]
struct Entries {
    entries: VecDeque<(u64, Entry)>,
}

impl Sink for Entries {
    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        if let [under @ .., frame] = frames {
            let caller = under.last().map(Frame::site);
            self.entries.push_back((
                frame.clock,
                Entry {
                    site: frame.site(),
                    caller,
                },
            ));
        }
        0
    }

    fn leave(&mut self, _frame: &Frame, _ending: Ending, _frames: &[Frame]) {}

    fn lose(&mut self, _frame: &Frame, _clock: u64, _counted: bool) {}

    fn stray(&mut self, _key: u32, _ending: Ending) {}
}

impl Teller for Entries {
    type Moment = Entry;

    fn take(&mut self) -> Option<(u64, Entry)> {
        self.entries.pop_front()
    }
}
