//! The callers and callees of a function.

use std::io::{self, Write};

use anyhow::Result;
use nopal_trace::{ThreadInfo, Trace};

use super::objects::Objects;
use super::order::Column;
use crate::calls::{Ending, Frame, Sink};
use crate::drive::{Drive, Worker};
use crate::names::Names;
use crate::off::{CALLS_OFF, Off, WITH_UNTIMED, with_untimed};
use crate::sort;
use crate::text::{Align, Table, bound, bound_count, duration, percent};
use crate::waits::{InCall, PARTS, Parts, write_of_some};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Callers,
    /// The places in the callers where the calls are.
    CallSites,
    Callees,
}

/// The calls between the function and another one, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Related {
    pub function: String,
    pub module: String,
    pub calls: u64,
    /// How many of them ended, and the time in those.
    pub ended: u64,
    pub ended_ns: u64,
    pub unfinished: u64,
    /// The time in the callee; calls that did not end count as far as known.
    pub total_ns: u64,
    pub self_ns: u64,
    /// Of the caller of some calls only the entry was recorded: it may have ended before.
    pub is_estimated: bool,
    /// The callee was off or counted for a time, so there may have been more calls.
    pub calls_are_least: bool,
    /// It may have been more.
    pub total_is_least: bool,
    pub self_is_least: bool,
    /// The self time may have in it that of callees that were not timed.
    pub self_with_untimed: bool,
    /// The parts of `total_ns` and of `self_ns` off the processor, in nanoseconds; none if these were not recorded.
    pub waited: Option<InCall>,
}

pub const RELATED_BY: [Column<Related>; 6] = [
    ("total", |row| row.total_ns),
    ("self", |row| row.self_ns),
    ("cpu", |row| row.parts().map_or(0, |parts| parts.cpu)),
    ("wait", |row| row.parts().map_or(0, |parts| parts.wait)),
    ("calls", |row| row.calls),
    ("avg", Related::average_ns),
];

impl Related {
    /// The average time of the calls that ended.
    fn average_ns(&self) -> u64 {
        self.ended_ns / self.ended.max(1)
    }

    /// The parts of the total time on the processor and off it.
    fn parts(&self) -> Option<Parts> {
        Some(self.waited?.total.parts_of(self.total_ns))
    }

    /// Whether any of the calls has a duration, as far as that is known.
    pub fn is_timed(&self) -> bool {
        self.ended + self.unfinished > 0
    }
}

#[derive(Clone, Copy, Default)]
struct Sum {
    calls: u64,
    ended: u64,
    ended_ticks: u64,
    unfinished: u64,
    total: u64,
    own: u64,
    own_is_least: bool,
    is_estimated: bool,
    waited: InCall,
}

impl Sum {
    fn time(&mut self, frame: &Frame, clock: u64) -> u64 {
        let ticks = clock.saturating_sub(frame.clock);
        self.total = self.total.saturating_add(ticks);
        self.own = self.own.saturating_add(ticks.saturating_sub(frame.child));
        ticks
    }
}

struct Pairs<'a> {
    names: &'a Names,
    relation: Relation,
    process: u32,
    /// Of the call that begins next; 0 where it is not known.
    return_address: u64,
    /// By function.
    wanted: &'a [bool],
    /// By function; the last stands for no caller.
    sums: Vec<Sum>,
    /// The sum in which the last ended call counts.
    ended: Option<usize>,
}

impl Pairs<'_> {
    /// Whom a call by the last of `under` counts for, and whether that is an estimate; the frame's note tells whom from
    /// now on.
    fn caller(&self, under: &[Frame], callee: &Frame, return_address: u64) -> (u32, bool) {
        let named = self
            .names
            .number_of_call(self.process, callee.site(), return_address);
        match (named, under.last()) {
            (Some(caller), _) => (caller, false),
            (None, Some(caller)) => (self.names.number(caller.site()), !caller.has_end()),
            (None, None) => (self.wanted.len() as u32, false),
        }
    }

    /// Where a call counts that has ended.
    fn ended(&mut self, caller: u32, callee: &Frame) -> Option<&mut Sum> {
        self.ended = self.place(caller, callee);
        self.sums.get_mut(self.ended?)
    }

    fn sum_of(&mut self, caller: u32, callee: &Frame) -> Option<&mut Sum> {
        let place = self.place(caller, callee)?;
        self.sums.get_mut(place)
    }

    fn place(&self, caller: u32, callee: &Frame) -> Option<usize> {
        let (caller, callee) = (caller as usize, self.names.number(callee.site()) as usize);
        let (function, other) = match self.relation {
            Relation::Callers | Relation::CallSites => (callee, caller),
            Relation::Callees => (caller, callee),
        };
        let wanted = self.wanted.get(function).copied().unwrap_or(false);
        wanted.then_some(other)
    }
}

impl Sink for Pairs<'_> {
    fn call_site(&mut self, return_address: u64) {
        self.return_address = return_address;
    }

    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let return_address = std::mem::take(&mut self.return_address);
        let [under @ .., callee] = frames else {
            return 0;
        };
        let (caller, is_estimated) = self.caller(under, callee, return_address);
        if let Some(sum) = self.sum_of(caller, callee) {
            sum.calls += 1;
            sum.is_estimated |= is_estimated;
        }
        caller
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        if let Some(sum) = self.ended(frame.note, frame) {
            let ticks = sum.time(frame, ending.clock);
            sum.ended += 1;
            sum.ended_ticks = sum.ended_ticks.saturating_add(ticks);
            sum.own_is_least |= frame.is_bounded();
        }
    }

    fn dismiss(&mut self, frame: &Frame, _counted: bool) {
        if let Some(sum) = self.sum_of(frame.note, frame) {
            sum.calls -= 1;
        }
    }

    /// The frame's note names its caller.
    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        if let Some(sum) = self.ended(frame.note, frame) {
            sum.unfinished += 1;
            sum.time(frame, clock);
        }
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        let nobody = self.wanted.len() as u32;
        if let Some(sum) = self.ended(nobody, frame) {
            sum.unfinished += 1;
            sum.time(frame, ending.clock);
        }
    }

    fn waited(&mut self, _frame: &Frame, _clock: u64, waited: InCall) {
        if let Some(sum) = self.ended.and_then(|place| self.sums.get_mut(place)) {
            sum.waited += waited;
        }
    }
}

impl Worker for Pairs<'_> {
    fn takes_waits(&self) -> bool {
        true
    }

    fn begin(&mut self, _stream: usize, thread: &ThreadInfo) {
        self.process = thread.process;
    }
}

/// The callers, or callees, of the functions that `pattern` matches, those with most time first.
pub fn related(
    trace: &Trace,
    pattern: &str,
    relation: Relation,
    drive: &Drive,
) -> Result<Vec<Related>> {
    let mut names = Names::new(trace);
    let numbers = names.wanted(pattern)?;
    if relation == Relation::CallSites {
        names.name_call_sites(trace)?;
    }
    let mut wanted = vec![false; names.functions().len()];
    for number in numbers {
        wanted[number as usize] = true;
    }
    let sums = vec![Sum::default(); wanted.len() + 1];
    let worker = |_| Pairs {
        names: &names,
        relation,
        process: 0,
        return_address: 0,
        wanted: &wanted,
        sums: sums.clone(),
        ended: None,
    };
    let mut workers: Vec<Pairs> = (0..drive.workers.max(1)).map(worker).collect();
    drive.run(trace, &mut workers)?;
    let off = Off::new(trace, &names, drive.filter);
    let wanted_was_off = (0..)
        .zip(&wanted)
        .any(|(number, wanted)| *wanted && off.lacks_calls(number));
    let mut found = Vec::new();
    for number in 0..=wanted.len() {
        let mut row = Related {
            waited: drive.waits.map(|_| InCall::default()),
            ..Related::default()
        };
        (row.function, row.module) = match names.functions().get(number) {
            Some(function) => (function.name.clone(), function.module.clone()),
            None => ("(no traced function)".into(), "-".into()),
        };
        for worker in &workers {
            let sum = &worker.sums[number];
            row.calls += sum.calls;
            row.ended += sum.ended;
            row.unfinished += sum.unfinished;
            row.is_estimated |= sum.is_estimated;
            row.total_is_least |= sum.unfinished > 0;
            row.self_is_least |= sum.unfinished > 0 || sum.own_is_least;
            row.ended_ns = row
                .ended_ns
                .saturating_add(trace.clocks().duration_ns(sum.ended_ticks));
            row.total_ns = row
                .total_ns
                .saturating_add(trace.clocks().duration_ns(sum.total));
            row.self_ns = row
                .self_ns
                .saturating_add(trace.clocks().duration_ns(sum.own));
            if let Some(waited) = &mut row.waited {
                let ns = |ticks| trace.clocks().duration_ns(ticks);
                waited.total += sum.waited.total.map(ns);
                waited.own += sum.waited.own.map(ns);
            }
        }
        row.calls_are_least = match relation {
            Relation::Callers | Relation::CallSites => wanted_was_off,
            Relation::Callees => off.lacks_calls(number as u32),
        };
        row.self_with_untimed = off.may_be_in_self(row.total_ns, row.self_ns);
        row.total_is_least |= row.calls_are_least;
        row.self_is_least |= row.calls_are_least;
        if row.calls + row.ended + row.unfinished > 0 {
            found.push(row);
        }
    }
    sort::by(&mut found, |a, b| {
        (b.total_ns, b.calls)
            .cmp(&(a.total_ns, a.calls))
            .then_with(|| (&a.function, &a.module).cmp(&(&b.function, &b.module)))
    });
    Ok(found)
}

pub fn write_related(
    rows: &[Related],
    relation: Relation,
    out: &mut dyn Write,
    width: usize,
) -> io::Result<()> {
    let all = rows
        .iter()
        .fold(0u64, |sum, row| sum.saturating_add(row.total_ns));
    let heading = match relation {
        Relation::Callers => "caller",
        Relation::CallSites => "call site",
        Relation::Callees => "callee",
    };
    let parts: &[&str] = match rows.iter().any(|row| row.waited.is_some()) {
        true => &PARTS,
        false => &[],
    };
    let numbers = [&["total", "of all", "self"], parts, &["calls", "avg"]].concat();
    let numbers: Vec<_> = numbers
        .into_iter()
        .map(|name| (name, Align::Right))
        .collect();
    let names = [(heading, Align::Left), ("module", Align::Left)];
    let columns = [numbers.as_slice(), &names].concat();
    let mut table = Table::new(&columns).give_way(&["avg", "self", "module"]);
    for row in rows {
        let timed = |calls: u64, text: String| match calls {
            0 => "-".to_string(),
            _ => text,
        };
        let known = u64::from(row.is_timed());
        let own = bound(row.self_ns, row.self_is_least);
        let own = with_untimed(own, row.self_with_untimed);
        let mut cells = vec![
            timed(known, bound(row.total_ns, row.total_is_least)),
            timed(known, percent(row.total_ns, all)),
            timed(known, own),
        ];
        if let Some(parts) = row.parts() {
            let part = |ns, is_least| timed(known, bound(ns, is_least));
            cells.extend(parts.cells(row.total_is_least, part));
        }
        cells.extend([
            bound_count(row.calls, row.calls_are_least),
            timed(row.ended, duration(row.average_ns())),
            match row.is_estimated {
                true => format!("{} ?", row.function),
                false => row.function.clone(),
            },
            row.module.clone(),
        ]);
        table.row(cells);
    }
    table.write(out, width)?;
    write_of_some(rows.iter().map(Related::parts), out)?;
    if rows.iter().any(|row| row.is_estimated) {
        writeln!(
            out,
            "? estimated: only the entries of the caller were recorded, so it may have ended before"
        )?;
    }
    if rows.iter().any(|row| row.calls_are_least) {
        writeln!(out, "{CALLS_OFF}")?;
    }
    if rows.iter().any(|row| row.self_with_untimed) {
        writeln!(out, "{WITH_UNTIMED}")?;
    }
    Ok(())
}

/// An array of objects, one a caller or callee. If the trace is incomplete, the first has the member `losses`, too.
pub fn write_related_json(rows: &[Related], trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let mut objects = Objects::new(trace, out);
    for row in rows {
        objects.begin("function", &row.function)?;
        objects.text("module", &row.module);
        objects.numbers(&[
            ("calls", row.calls),
            ("total_ns", row.total_ns),
            ("self_ns", row.self_ns),
        ]);
        objects.numbers_if(row.ended > 0, &[("avg_ns", row.average_ns())]);
        objects.numbers(&[("unfinished", row.unfinished)]);
        if let Some(waited) = row.waited {
            objects.waited_in_calls(row.total_ns, row.self_ns, waited);
        }
        objects.flags(&[
            ("total_is_least", row.total_is_least),
            ("self_is_least", row.self_is_least),
            ("self_with_untimed_callees", row.self_with_untimed),
            ("calls_are_least", row.calls_are_least),
            ("is_estimated", row.is_estimated),
            ("entries_only", row.calls > 0 && !row.is_timed()),
        ]);
    }
    objects.end()
}
