//! `nopal dump`: a trace in the formats of other tools.

mod chrome;
mod devtrace;
mod folded;
mod function;
mod inside;
mod latency;
mod linux;
mod raw;
mod tracks;

use std::io::{self, Write};

use anyhow::{Result, bail};
use nopal_trace::{Packet, ThreadInfo, Trace};

use crate::drive::Drive;
use crate::filter::Filter;

pub use folded::{Weight, write as write_folded};
pub use latency::{Latency, Recorder, all, case};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// A line for each record: `E` or `X`, address of the function, counter, thread, then four arguments or the result,
    /// each of 16 hexadecimal digits. Values that were not recorded are 0.
    Devtrace,
    /// A line for each entry: `CPU 1: comm:pid function+0x0/size <-- parent+-/size`; and one for each kernel event:
    /// `CPU 1: comm:pid 8:49:S --> 11:115 group_balance`; or as the look says. The place of the call in its parent is
    /// not recorded: `-` stands for it, and for an unknown CPU.
    Function(Look),
    /// The longest call of a function, the worst case of a tracer, or all records, as a latency trace.
    Latency(Latency),
    /// JSON for Perfetto and chrome://tracing. Times are microseconds since the trace began.
    Chrome,
    /// A line for each path of calls, with its weight.
    Folded(Weight),
    /// A line for each record.
    Raw,
}

/// The place at which a format states the losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossNotice {
    /// In comments, with `#` in front; one of them is the first line.
    Comment,
    /// In a part of its own content.
    Within,
    /// Nowhere: they must be printed separately.
    Apart,
}

impl Format {
    pub fn losses(&self) -> LossNotice {
        match self {
            Format::Function(_) | Format::Raw => LossNotice::Comment,
            Format::Chrome => LossNotice::Within,
            Format::Devtrace | Format::Latency(_) | Format::Folded(_) => LossNotice::Apart,
        }
    }
}

/// A part of a trace. Calls that began before it are not known as callers.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt {
    /// The records with a greater counter than this, …
    pub after: u64,
    /// … and none with a greater one than this.
    pub until: u64,
}

impl Excerpt {
    pub const ALL: Excerpt = Excerpt {
        after: 0,
        until: u64::MAX,
    };

    /// The time that a filter selects.
    fn of(filter: &Filter) -> Excerpt {
        Excerpt {
            after: filter.from.map_or(0, |from| from.saturating_sub(1)),
            until: filter.until.unwrap_or(u64::MAX),
        }
    }

    fn holds(&self, clock: u64) -> bool {
        clock > self.after && clock <= self.until
    }

    /// The packets that may hold some of its records.
    fn packets<'a>(self, thread: &ThreadInfo<'a>) -> impl Iterator<Item = Packet<'a>> + use<'a> {
        let packets = thread.packets();
        packets.filter(move |packet| {
            packet.clock_end() > self.after && packet.clock_begin() <= self.until
        })
    }
}

/// As [`Format::Devtrace`].
pub fn devtrace(trace: &Trace, excerpt: Excerpt, out: &mut dyn Write) -> Result<()> {
    devtrace::dump(trace, &Filter::default(), excerpt, out)
}

/// The look of the lines of [`function`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The address of each function behind it: ` <address>`.
    pub addresses: bool,
    /// The lines of the verbose latency format, with times. A `-` stands for a value that is not recorded.
    pub verbose: bool,
}

/// As [`Format::Function`], or as `look` says.
pub fn function(trace: &Trace, excerpt: Excerpt, look: Look, out: &mut dyn Write) -> Result<()> {
    function::dump(trace, &Filter::default(), excerpt, look, out)
}

/// The calls that the filter of `drive` selects. Formats of records have no functions and durations to select by.
pub fn dump(trace: &Trace, format: Format, drive: &Drive, out: &mut dyn Write) -> Result<()> {
    let all = Filter::default();
    let filter = drive.filter.unwrap_or(&all);
    let is_of_records = matches!(format, Format::Devtrace | Format::Function(_) | Format::Raw);
    if is_of_records && (filter.has_functions() || filter.least_ns > 0) {
        bail!(
            "this format shows records, which -F, -N and -t do not select: they select calls for the other formats and for `nopal replay`"
        );
    }
    let excerpt = Excerpt::of(filter);
    match format {
        Format::Devtrace => devtrace::dump(trace, filter, excerpt, out),
        Format::Function(look) => function::dump(trace, filter, excerpt, look, out),
        Format::Latency(latency) => latency::dump(trace, &latency, drive, out),
        Format::Chrome => chrome::dump(trace, drive, out),
        Format::Folded(weight) => folded::dump(trace, weight, drive, out),
        Format::Raw => raw::dump(trace, filter, excerpt, out),
    }
}

/// The approximate size in bytes of a whole trace in a format that grows with the trace; 0 for other formats.
pub fn estimate(trace: &Trace, format: &Format) -> u64 {
    // Bytes for a record: half a call.
    let of_record = match format {
        Format::Devtrace => 121,
        Format::Function(_) => 30,
        Format::Chrome => 55,
        Format::Raw => 50,
        Format::Latency(_) | Format::Folded(_) => 0,
    };
    let threads = trace.threads();
    let packets = threads.iter().flat_map(|thread| thread.packets());
    let words: u64 = packets.map(|packet| packet.words().len() as u64).sum();
    words.saturating_mul(of_record)
}

/// Whether kernel events of a thread are shown with the calls of these threads.
fn are_shown(filter: &Filter, threads: &[ThreadInfo], thread: u32) -> bool {
    !filter.has_threads() || threads.iter().any(|shown| shown.thread == thread)
}

/// Gathers lines to be written together.
struct Lines<'a> {
    out: &'a mut dyn Write,
    text: Vec<u8>,
}

const LINES_BYTES: usize = 1 << 16;

impl Lines<'_> {
    fn new(out: &mut dyn Write) -> Lines<'_> {
        Lines {
            out,
            text: Vec::new(),
        }
    }

    /// Must be called after each line.
    fn end_line(&mut self) -> io::Result<()> {
        self.text.push(b'\n');
        if self.text.len() >= LINES_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }
}
