//! The lines of the first function tracer of Linux.

use std::collections::VecDeque;
use std::io::Write;

use anyhow::Result;
use nopal_trace::Trace;

use super::{Excerpt, Lines};
use crate::addresses::Addresses;
use crate::calls::{Ending, Frame, Sink};
use crate::names::{Names, ThreadNames};
use crate::text::{push_hex_short, push_u64};
use crate::timeline::{Teller, Telling, timeline};

pub fn dump(trace: &Trace, excerpt: Excerpt, addresses: bool, out: &mut dyn Write) -> Result<()> {
    let names = Names::new(trace);
    let places = addresses.then(|| Addresses::new(trace));
    let thread_names = ThreadNames::new(trace);
    let threads = trace.threads();
    let mut comms: Vec<Option<String>> = vec![None; threads.len()];
    let mut lines = Lines::new(out);
    for (stream, clock, entry) in timeline(&threads, |_, thread| {
        Telling::new(excerpt.packets(thread), Entries::default())
    }) {
        if !excerpt.holds(clock) {
            continue;
        }
        let thread = &threads[stream];
        let comm = comms[stream].get_or_insert_with(|| thread_names.of(thread));
        let text = &mut lines.text;
        text.extend_from_slice(b"CPU -: ");
        text.extend_from_slice(comm.as_bytes());
        text.push(b':');
        push_u64(text, u64::from(thread.thread));
        let push_place = |text: &mut Vec<u8>, site, offset| {
            push_place(text, &names, site, offset);
            if let Some(places) = &places {
                text.extend_from_slice(b" <");
                push_hex_short(text, places.address(thread.process, site, clock));
                text.push(b'>');
            }
        };
        push_place(text, entry.site, "+0x0/0x");
        text.extend_from_slice(b" <--");
        match entry.caller {
            Some(caller) => push_place(text, caller, "+-/0x"),
            None => text.extend_from_slice(b" -"),
        }
        lines.end_line()?;
    }
    Ok(lines.flush()?)
}

fn push_place(text: &mut Vec<u8>, names: &Names, site: u32, offset: &str) {
    let function = names.function(site);
    text.push(b' ');
    text.extend_from_slice(function.name.as_bytes());
    text.extend_from_slice(offset.as_bytes());
    push_hex_short(text, function.size);
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
