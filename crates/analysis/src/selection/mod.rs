//! A part of a trace as a trace of its own: some threads, and a time.
//!
//! Readers of it show what they show of the whole trace when the same is selected. Whatever only the records outside of
//! the time would tell is taken along: the calls, and the states of tasks and processors, in which it begins and ends.

mod ends;
mod system;

use anyhow::{Result, ensure};
use nopal_symbols::demangle;
use nopal_trace::{Output, Select, Selection, ThreadInfo, Trace, select};

use crate::drive::Drive;
use crate::filter::Filter;
use crate::span::begin;

/// Writes the selected part of a trace. A directory must be empty or not there. `go_on` is called now and then: an
/// error ends the work.
pub fn write(
    trace: &Trace,
    drive: &Drive,
    output: Output,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let all = Filter::all(trace);
    let filter = drive.filter.unwrap_or(&all);
    ensure!(
        !filter.has_functions() && filter.least_ns == 0,
        "-F, -N and -t are not for a trace: without some of its calls, the own times of others would be wrong"
    );
    let threads = filter.threads(trace);
    let words = |thread: &ThreadInfo| {
        let packets = thread.packets();
        packets
            .map(|packet| packet.words().len() as u64)
            .sum::<u64>()
    };
    // Each thread is read twice.
    let total = threads.iter().map(words).sum::<u64>().saturating_mul(2);
    let mut done = 0;
    let mut pause = |words: u64| {
        done += words;
        if let Some(progress) = drive.progress {
            progress(done.min(total), total);
        }
        go_on()
    };
    let mut notes = Vec::new();
    for thread in &threads {
        notes.extend(ends::notes(trace, thread, filter, &mut pause)?);
    }
    let (from, until) = (filter.from, filter.until);
    notes.extend(system::pauses(trace, from, until));
    let key = |thread: &ThreadInfo| (thread.process, thread.thread, thread.begin);
    let selection = Selection {
        uuid: trace.uuid().to_string(),
        directory: trace.directory().display().to_string(),
        begin: begin(trace),
        from,
        until,
        threads: filter
            .has_threads()
            .then(|| threads.iter().map(key).collect()),
    };
    let select_all = Select {
        selection,
        notes,
        kernel_events: &mut system::events(trace, from, until),
        readable: demangle,
        pause: &mut pause,
    };
    select(trace, output, select_all)
}
