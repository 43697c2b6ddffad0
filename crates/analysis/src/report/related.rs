//! The callers and callees of a function.

use std::io::{self, Write};

use anyhow::Result;
use nopal_trace::Trace;

use crate::calls::{Ending, Frame, Sink};
use crate::drive::{Drive, Worker};
use crate::names::Names;
use crate::text::{Align, Table, bound, count, duration, percent};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Callers,
    Callees,
}

/// The calls between the function and another one, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Related {
    pub function: String,
    pub module: String,
    pub calls: u64,
    /// How many of them ended, and the time in these.
    pub ended: u64,
    pub ended_ns: u64,
    /// The time in the function that was called, of those that did not end as much as is known.
    pub unfinished: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    /// It may have been more.
    pub total_is_least: bool,
    pub self_is_least: bool,
}

impl Related {
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
    /// By function.
    wanted: &'a [bool],
    /// By function; the last one is nobody.
    sums: Vec<Sum>,
}

impl Pairs<'_> {
    /// Where a call by the last of `under` to `callee` counts.
    fn sum(&mut self, under: &[Frame], callee: &Frame) -> Option<&mut Sum> {
        let caller = self.caller(under);
        self.sum_of(caller, callee)
    }

    fn caller(&self, under: &[Frame]) -> u32 {
        under.last().map_or(self.wanted.len() as u32, |caller| {
            self.names.number(caller.site())
        })
    }

    fn sum_of(&mut self, caller: u32, callee: &Frame) -> Option<&mut Sum> {
        let (caller, callee) = (caller as usize, self.names.number(callee.site()) as usize);
        let (function, other) = match self.relation {
            Relation::Callers => (callee, caller),
            Relation::Callees => (caller, callee),
        };
        let wanted = self.wanted.get(function).copied().unwrap_or(false);
        if wanted {
            self.sums.get_mut(other)
        } else {
            None
        }
    }
}

impl Sink for Pairs<'_> {
    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        if let [under @ .., callee] = frames
            && let Some(sum) = self.sum(under, callee)
        {
            sum.calls += 1;
        }
        let [under @ .., _] = frames else {
            return 0;
        };
        self.caller(under)
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        if let Some(sum) = self.sum(frames, frame) {
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

    /// Whom the frame's note tells called it.
    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        if let Some(sum) = self.sum_of(frame.note, frame) {
            sum.unfinished += 1;
            sum.time(frame, clock);
        }
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        let nobody = self.caller(&[]);
        if let Some(sum) = self.sum_of(nobody, frame) {
            sum.unfinished += 1;
            sum.time(frame, ending.clock);
        }
    }
}

impl Worker for Pairs<'_> {}

/// The callers, or callees, of the functions that `pattern` means, those with most time first.
pub fn related(
    trace: &Trace,
    pattern: &str,
    relation: Relation,
    drive: &Drive,
) -> Result<Vec<Related>> {
    let names = Names::new(trace);
    let mut wanted = vec![false; names.functions().len()];
    for number in names.wanted(pattern)? {
        wanted[number as usize] = true;
    }
    let sums = vec![Sum::default(); wanted.len() + 1];
    let worker = |_| Pairs {
        names: &names,
        relation,
        wanted: &wanted,
        sums: sums.clone(),
    };
    let mut workers: Vec<Pairs> = (0..drive.workers.max(1)).map(worker).collect();
    drive.run(trace, &mut workers)?;
    let mut found = Vec::new();
    for number in 0..=wanted.len() {
        let mut row = Related::default();
        (row.function, row.module) = match names.functions().get(number) {
            Some(function) => (function.name.clone(), function.module.clone()),
            None => ("(no traced function)".into(), "-".into()),
        };
        for worker in &workers {
            let sum = &worker.sums[number];
            row.calls += sum.calls;
            row.ended += sum.ended;
            row.unfinished += sum.unfinished;
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
        }
        if row.calls + row.ended + row.unfinished > 0 {
            found.push(row);
        }
    }
    found.sort_by(|a, b| {
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
        Relation::Callees => "callee",
    };
    let numbers = ["total", "of all", "self", "calls", "avg"].map(|name| (name, Align::Right));
    let names = [(heading, Align::Left), ("module", Align::Left)];
    let columns = [numbers.as_slice(), &names].concat();
    let mut table = Table::new(&columns).give_way(&["avg", "self", "module"]);
    for row in rows {
        let timed = |calls: u64, text: String| match calls {
            0 => "-".to_string(),
            _ => text,
        };
        let known = u64::from(row.is_timed());
        table.row(vec![
            timed(known, bound(row.total_ns, row.total_is_least)),
            timed(known, percent(row.total_ns, all)),
            timed(known, bound(row.self_ns, row.self_is_least)),
            count(row.calls),
            timed(row.ended, duration(row.ended_ns / row.ended.max(1))),
            row.function.clone(),
            row.module.clone(),
        ]);
    }
    table.write(out, width)
}
