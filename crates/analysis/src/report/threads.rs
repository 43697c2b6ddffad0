//! The report by thread.

use std::io::{self, Write};

use anyhow::Result;
use nopal_trace::{Clocks, ThreadInfo, Trace};

use super::objects::Objects;
use super::order::Column;
use crate::calls::{Ending, Frame, Plain, Sink};
use crate::drive::{Drive, Worker};
use crate::names::ThreadNames;
use crate::text::{Align, Table, bound, count, duration};
use crate::waits::{InCall, PARTS, Parts, Waited, write_of_some};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadRow {
    pub process: u32,
    pub thread: u32,
    /// What it is called in its own PID namespace, if it has one.
    pub inside: Option<u32>,
    /// `process`, and `thread`, are such ids, too: those outside are not known.
    pub process_is_inner: bool,
    pub thread_is_inner: bool,
    pub name: String,
    pub calls: u64,
    /// Calls that did not end, and those that began before tracing.
    pub unfinished: u64,
    pub lost: u64,
    /// From its first record to its last, without times in which records are missing.
    pub span_ns: u64,
    /// The time in traced functions, and whether it may be more.
    pub busy_ns: u64,
    pub busy_is_least: bool,
    /// Whether any of its calls has a duration, as far as that is known.
    pub is_timed: bool,
    /// The part of `busy_ns` off the processor, in nanoseconds; none if it was not recorded.
    pub waited: Option<Waited>,
}

impl ThreadRow {
    /// The parts of the time in traced functions on the processor and off it.
    fn parts(&self) -> Option<Parts> {
        Some(self.waited?.parts_of(self.busy_ns))
    }
}

pub const THREADS_BY: [Column<ThreadRow>; 7] = [
    ("calls", |row| row.calls),
    ("time", |row| row.span_ns),
    ("traced", |row| row.busy_ns),
    ("cpu", |row| row.parts().map_or(0, |parts| parts.cpu)),
    ("wait", |row| row.parts().map_or(0, |parts| parts.wait)),
    ("unfinished", |row| row.unfinished),
    ("lost", |row| row.lost),
];

#[derive(Clone, Copy, Default)]
struct Sum {
    calls: u64,
    unfinished: u64,
    busy: u64,
    busy_is_least: bool,
    is_timed: bool,
    missing: u64,
    waited: Waited,
}

impl Sum {
    fn time(&mut self, frame: &Frame, clock: u64) {
        let own = clock
            .saturating_sub(frame.clock)
            .saturating_sub(frame.child);
        self.busy = self.busy.saturating_add(own);
        self.is_timed = true;
    }

    fn time_least(&mut self, frame: &Frame, clock: u64) {
        self.unfinished += 1;
        self.busy_is_least = true;
        self.time(frame, clock);
    }
}

struct Sums {
    threads: Vec<Sum>,
    present: usize,
}

impl Sums {
    fn sum(&mut self) -> &mut Sum {
        &mut self.threads[self.present]
    }
}

impl Sink for Sums {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        let sum = self.sum();
        let is_exit = 0u64.wrapping_sub(call.exit);
        sum.calls += 1 - call.exit;
        sum.busy = sum.busy.saturating_add(call.own & is_exit);
        sum.is_timed |= call.exit != 0;
        0
    }

    fn enter(&mut self, _frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        self.sum().calls += 1;
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.sum().time(frame, ending.clock);
        self.sum().busy_is_least |= frame.is_bounded();
    }

    fn dismiss(&mut self, _frame: &Frame, _counted: bool) {
        self.sum().calls -= 1;
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        self.sum().time_least(frame, clock);
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.sum().time_least(frame, ending.clock);
    }

    fn waited(&mut self, _frame: &Frame, _clock: u64, waited: InCall) {
        self.sum().waited += waited.own;
    }

    fn missing(&mut self, _clock: u64, ticks: u64) {
        let sum = self.sum();
        sum.missing = sum.missing.saturating_add(ticks);
    }
}

impl Worker for Sums {
    fn takes_waits(&self) -> bool {
        true
    }

    fn begin(&mut self, stream: usize, _thread: &ThreadInfo) {
        self.present = stream;
    }
}

/// All threads, by process and thread.
pub fn threads(trace: &Trace, drive: &Drive) -> Result<Vec<ThreadRow>> {
    let infos = trace.threads();
    let new = |_| Sums {
        threads: vec![Sum::default(); infos.len()],
        present: 0,
    };
    let mut workers: Vec<Sums> = (0..drive.workers.max(1)).map(new).collect();
    drive.run(trace, &mut workers)?;
    let clocks: &Clocks = trace.clocks();
    let names = ThreadNames::new(trace);
    let infos = infos.iter().enumerate();
    let selected = infos.filter(|(at, _)| drive.filter.is_none_or(|filter| filter.has(*at)));
    let rows = selected.map(|(at, thread)| {
        let mut row = ThreadRow {
            process: thread.process,
            thread: thread.thread,
            inside: trace.inside(thread.process, thread.thread),
            process_is_inner: trace.is_inner(thread.process, 0),
            thread_is_inner: thread.in_namespace,
            name: names.of(thread),
            lost: thread.lost(),
            waited: drive.waits.map(|_| Waited::default()),
            ..ThreadRow::default()
        };
        let mut missing = 0u64;
        for worker in &workers {
            let sum = &worker.threads[at];
            row.calls += sum.calls;
            row.unfinished += sum.unfinished;
            row.busy_is_least |= sum.busy_is_least;
            row.is_timed |= sum.is_timed;
            missing = missing.saturating_add(sum.missing);
            row.busy_ns = row.busy_ns.saturating_add(clocks.duration_ns(sum.busy));
            if let Some(waited) = &mut row.waited {
                *waited += sum.waited.map(|ticks| clocks.duration_ns(ticks));
            }
        }
        let first = thread
            .packets()
            .next()
            .map_or(0, |packet| packet.clock_begin());
        let span = thread
            .clock_end()
            .saturating_sub(first)
            .saturating_sub(missing);
        row.span_ns = clocks.duration_ns(span);
        row
    });
    Ok(rows.collect())
}

/// An array of objects, one a thread. If the trace is incomplete, the first has the member `losses`, too.
pub fn write_threads_json(
    rows: &[ThreadRow],
    trace: &Trace,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut objects = Objects::new(trace, out);
    for row in rows {
        objects.begin("name", &row.name)?;
        objects.numbers(&[
            ("process", row.process.into()),
            ("thread", row.thread.into()),
            ("calls", row.calls),
            ("time_ns", row.span_ns),
            ("traced_ns", row.busy_ns),
            ("unfinished", row.unfinished),
            ("lost", row.lost),
        ]);
        if let Some(number) = row.inside {
            objects.numbers(&[("inside", number.into())]);
        }
        if let Some(waited) = row.waited {
            objects.waited(row.busy_ns, waited);
        }
        objects.flags(&[
            ("process_is_inner", row.process_is_inner),
            ("thread_is_inner", row.thread_is_inner),
            ("traced_is_least", row.busy_is_least),
            ("entries_only", !row.is_timed && row.calls > 0),
        ]);
    }
    objects.end()
}

/// What a process or thread is called outside of its own PID namespace, or inside; `-` if that is not known.
pub(super) fn number_if_known(number: Option<u32>) -> String {
    number.map_or_else(|| "-".to_string(), |number| number.to_string())
}

pub fn write_threads(rows: &[ThreadRow], out: &mut dyn Write, width: usize) -> io::Result<()> {
    let parts: &[&str] = match rows.iter().any(|row| row.waited.is_some()) {
        true => &PARTS,
        false => &[],
    };
    let inside = rows.iter().any(|row| row.inside.is_some());
    let inside: &[&str] = if inside { &["inside"] } else { &[] };
    let before = ["calls", "time", "traced"];
    let after = ["unfinished", "lost"];
    let numbers = [&["process", "thread"], inside, &before, parts, &after].concat();
    let mut columns: Vec<_> = numbers
        .into_iter()
        .map(|name| (name, Align::Right))
        .collect();
    columns.push(("name", Align::Left));
    let mut table = Table::new(&columns);
    for row in rows {
        let traced = |ns, is_least| match row.is_timed || row.calls == 0 {
            true => bound(ns, is_least),
            false => "-".to_string(),
        };
        let mut cells = vec![
            number_if_known((!row.process_is_inner).then_some(row.process)),
            number_if_known((!row.thread_is_inner).then_some(row.thread)),
        ];
        cells.extend(inside.iter().map(|_| number_if_known(row.inside)));
        cells.extend([
            count(row.calls),
            duration(row.span_ns),
            traced(row.busy_ns, row.busy_is_least),
        ]);
        if let Some(parts) = row.parts() {
            cells.extend(parts.cells(row.busy_is_least, traced));
        }
        cells.extend([count(row.unfinished), count(row.lost), row.name.clone()]);
        table.row(cells);
    }
    table.write(out, width)?;
    write_of_some(rows.iter().map(ThreadRow::parts), out)
}
