//! The lines of the first function tracer of Linux.

use std::collections::VecDeque;
use std::io::Write;

use anyhow::Result;
use nopal_trace::Trace;

use super::linux::{AT_ENTRY, Entry, Flags, LineWriter, Moment, Told};
use super::{Excerpt, Lines, Look};
use crate::calls::{Ending, Frame, Sink};
use crate::names::ThreadNames;
use crate::timeline::{Teller, Telling, timeline};

pub fn dump(trace: &Trace, excerpt: Excerpt, look: Look, out: &mut dyn Write) -> Result<()> {
    let first = trace.clocks().snapshots().first();
    let begin_ns = first.map_or(0, |snapshot| snapshot.monotonic_ns);
    let writer = LineWriter::new(trace, look, begin_ns);
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
            flags: Flags::default(),
        };
        if look.verbose {
            writer.verbose(&mut lines.text, &moment, &Told::Call(entry, AT_ENTRY));
        } else {
            writer.simple(&mut lines.text, &moment, &entry);
        }
        lines.end_line()?;
        number += 1;
    }
    Ok(lines.flush()?)
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
