//! The report by process.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use anyhow::Result;
use nopal_trace::{Note, Trace};

use super::objects::Objects;
use super::order::Column;
use super::threads::{ThreadRow, number_if_known, threads};
use crate::drive::Drive;
use crate::names::printable;
use crate::sort;
use crate::span::begin;
use crate::text::{Align, Table, bound, count, duration};
use crate::waits::{PARTS, Parts, Waited, write_of_some};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessRow {
    pub process: u32,
    /// What it is called in its own PID namespace, if it has one.
    pub inside: Option<u32>,
    /// `process` is such an id, too: that outside is not known.
    pub is_inner: bool,
    pub parent: u32,
    /// The command of the program that it ran last.
    pub command: String,
    /// Nanoseconds since the trace began.
    pub start_ns: u64,
    /// To its end, or to when it was last known to run.
    pub duration_ns: u64,
    /// The time of its end is not in the trace.
    pub duration_is_least: bool,
    pub has_ended: bool,
    /// As `waitpid` gives it; none if it is not known.
    pub exit: Option<i32>,
    pub threads: u64,
    pub calls: u64,
    pub unfinished: u64,
    pub lost: u64,
    /// In traced functions, of all threads.
    pub self_ns: u64,
    pub self_is_least: bool,
    pub is_timed: bool,
    /// The part of `self_ns` off the processor, in nanoseconds; none if it was not recorded.
    pub waited: Option<Waited>,
}

pub const PROCESSES_BY: [Column<ProcessRow>; 8] = [
    ("start", |row| row.start_ns),
    ("duration", |row| row.duration_ns),
    ("threads", |row| row.threads),
    ("calls", |row| row.calls),
    ("self", |row| row.self_ns),
    ("cpu", |row| row.parts().map_or(0, |parts| parts.cpu)),
    ("wait", |row| row.parts().map_or(0, |parts| parts.wait)),
    ("lost", |row| row.lost),
];

impl ProcessRow {
    fn add(&mut self, thread: &ThreadRow, is_new: bool) {
        self.threads += u64::from(is_new);
        self.calls += thread.calls;
        self.unfinished += thread.unfinished;
        self.lost = self.lost.saturating_add(thread.lost);
        self.self_ns = self.self_ns.saturating_add(thread.busy_ns);
        self.self_is_least |= thread.busy_is_least;
        self.is_timed |= thread.is_timed;
        if let Some(waited) = thread.waited {
            *self.waited.get_or_insert_default() += waited;
        }
    }

    /// The parts of the self time on the processor and off it.
    fn parts(&self) -> Option<Parts> {
        Some(self.waited?.parts_of(self.self_ns))
    }

    /// `status 1`, `signal 9`.
    fn exit(&self) -> String {
        match self.exit {
            None if self.has_ended => "?".to_string(),
            None => "-".to_string(),
            Some(status) if status & 0x7f == 0 => format!("status {}", status >> 8 & 0xff),
            Some(status) => format!("signal {}", status & 0x7f),
        }
    }
}

/// When the processes ended, and with which status if that is known. The end of one whose number another one got later
/// does not count.
fn exits(trace: &Trace) -> BTreeMap<u32, (u64, Option<i32>)> {
    let mut exits = BTreeMap::new();
    for note in trace.notes() {
        if let Note::Exit {
            process,
            counter,
            status,
        } = note
        {
            exits.insert(*process, (*counter, *status));
        }
    }
    let threads = trace.threads();
    let begun = threads.iter().map(|thread| (thread.process, thread.begin));
    let programs = trace.processes();
    let begun = begun.chain(
        programs
            .iter()
            .map(|program| (program.process, program.counter)),
    );
    for (process, begin) in begun {
        if exits.get(&process).is_some_and(|(end, _)| *end < begin) {
            exits.remove(&process);
        }
    }
    exits
}

/// The selected processes, those with most self time first.
pub fn processes(trace: &Trace, drive: &Drive) -> Result<Vec<ProcessRow>> {
    let clocks = trace.clocks();
    let origin = clocks.monotonic_ns(begin(trace));
    let ns = |counter: u64| clocks.monotonic_ns(counter).saturating_sub(origin);
    let mut rows: BTreeMap<u32, ProcessRow> = BTreeMap::new();
    // The first thread of a process goes on in the programs that it executes.
    let mut first = BTreeSet::new();
    for thread in threads(trace, drive)? {
        let row = rows.entry(thread.process).or_default();
        row.process = thread.process;
        let is_new = thread.thread != thread.process || first.insert(thread.process);
        row.add(&thread, is_new);
    }
    let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
    let mut starts: BTreeMap<u32, u64> = BTreeMap::new();
    for thread in trace.threads() {
        if let Some(first) = thread.packets().next() {
            let first = first.clock_begin();
            let end = ends.entry(thread.process).or_default();
            *end = thread.clock_end().max(*end);
            let start = starts.entry(thread.process).or_insert(first);
            *start = first.min(*start);
        }
    }
    let is_all = drive.filter.is_none_or(|filter| !filter.has_threads());
    // They come in order of time: the last program counts.
    for process in trace.processes() {
        if is_all {
            let row = rows.entry(process.process).or_default();
            row.process = process.process;
            row.waited = row.waited.or(drive.waits.map(|_| Waited::default()));
        }
        let Some(row) = rows.get_mut(&process.process) else {
            continue;
        };
        let start = starts.entry(process.process).or_insert(process.counter);
        *start = process.counter.min(*start);
        if process.parent != 0 {
            row.parent = process.parent;
        }
        row.command = match process.arguments {
            [] => printable(process.name),
            arguments => printable(&arguments.join(" ")),
        };
    }
    let exits = exits(trace);
    for row in rows.values_mut() {
        row.inside = trace.inside(row.process, row.process);
        row.is_inner = trace.is_inner(row.process, 0);
        let start = starts.get(&row.process).copied().unwrap_or(0);
        row.start_ns = ns(start);
        row.has_ended = exits.contains_key(&row.process);
        // Without a status, the end was only noticed later.
        let end = match exits.get(&row.process) {
            Some((end, Some(status))) => {
                row.exit = Some(*status);
                *end
            }
            _ => {
                row.duration_is_least = true;
                ends.get(&row.process).copied().unwrap_or(start)
            }
        };
        // The process may have started before the first record that is left.
        row.duration_ns = clocks
            .monotonic_ns(end)
            .saturating_sub(clocks.monotonic_ns(start));
    }
    let mut rows: Vec<ProcessRow> = rows.into_values().collect();
    sort::by_key(&mut rows, |row| {
        std::cmp::Reverse((row.self_ns, row.calls, u32::MAX - row.process))
    });
    Ok(rows)
}

pub fn write_processes(rows: &[ProcessRow], out: &mut dyn Write, width: usize) -> io::Result<()> {
    let parts: &[&str] = match rows.iter().any(|row| row.waited.is_some()) {
        true => &PARTS,
        false => &[],
    };
    let inside = rows.iter().any(|row| row.inside.is_some());
    let inside: &[&str] = if inside { &["inside"] } else { &[] };
    let before = ["parent", "start", "duration", "threads", "calls", "self"];
    let numbers = [&["process"], inside, &before, parts].concat();
    let mut columns: Vec<_> = numbers
        .into_iter()
        .map(|name| (name, Align::Right))
        .collect();
    columns.extend([("exit", Align::Left), ("command", Align::Left)]);
    let mut table = Table::new(&columns);
    for row in rows {
        let timed = |ns, is_least| match row.is_timed || row.calls == 0 {
            true => bound(ns, is_least),
            false => "-".to_string(),
        };
        let mut cells = vec![number_if_known((!row.is_inner).then_some(row.process))];
        cells.extend(inside.iter().map(|_| number_if_known(row.inside)));
        cells.extend([
            match row.parent {
                0 => "?".to_string(),
                parent => parent.to_string(),
            },
            duration(row.start_ns),
            bound(row.duration_ns, row.duration_is_least),
            count(row.threads),
            count(row.calls),
            timed(row.self_ns, row.self_is_least),
        ]);
        if let Some(parts) = row.parts() {
            cells.extend(parts.cells(row.self_is_least, timed));
        }
        cells.extend([row.exit(), row.command.clone()]);
        table.row(cells);
    }
    table.write(out, width)?;
    write_of_some(rows.iter().map(ProcessRow::parts), out)
}

/// An array of objects, one a process, like that of threads.
pub fn write_processes_json(
    rows: &[ProcessRow],
    trace: &Trace,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut objects = Objects::new(trace, out);
    for row in rows {
        objects.begin("command", &row.command)?;
        objects.numbers(&[
            ("process", row.process.into()),
            ("parent", row.parent.into()),
            ("start_ns", row.start_ns),
            ("duration_ns", row.duration_ns),
            ("threads", row.threads),
            ("calls", row.calls),
            ("self_ns", row.self_ns),
            ("unfinished", row.unfinished),
            ("lost", row.lost),
        ]);
        if let Some(number) = row.inside {
            objects.numbers(&[("inside", number.into())]);
        }
        if let Some(status) = row.exit {
            let (name, number) = match status & 0x7f {
                0 => ("status", status >> 8 & 0xff),
                signal => ("signal", signal),
            };
            objects.numbers(&[(name, number as u64)]);
        }
        if let Some(waited) = row.waited {
            objects.waited(row.self_ns, waited);
        }
        objects.flags(&[
            ("process_is_inner", row.is_inner),
            ("duration_is_least", row.duration_is_least),
            ("self_is_least", row.self_is_least),
            ("entries_only", !row.is_timed && row.calls > 0),
        ]);
    }
    objects.end()
}
