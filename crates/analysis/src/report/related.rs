//! Who called a function, and whom it called.

use std::io::{self, Write};

use anyhow::Result;
use nopal_trace::Trace;

use crate::calls::{Ending, Frame, Sink};
use crate::drive::{Drive, Worker};
use crate::names::Names;
use crate::text::{Align, Table, count, duration, percent};

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
    /// Of the calls that ended: how many they are, and the time in the function that was called.
    pub ended: u64,
    pub total_ns: u64,
    pub self_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    calls: u64,
    ended: u64,
    total: u64,
    own: u64,
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
        let callee = self.names.number(callee.site()) as usize;
        let caller = under.last().map_or(self.wanted.len(), |caller| {
            self.names.number(caller.site()) as usize
        });
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
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        if let Some(sum) = self.sum(frames, frame) {
            let ticks = ending.clock.saturating_sub(frame.clock);
            sum.ended += 1;
            sum.total = sum.total.saturating_add(ticks);
            sum.own = sum.own.saturating_add(ticks.saturating_sub(frame.child));
        }
    }

    fn lose(&mut self, _frame: &Frame, _clock: u64, _counted: bool) {}

    fn stray(&mut self, _key: u32, _ending: Ending) {}
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
            row.total_ns = row
                .total_ns
                .saturating_add(trace.clocks().duration_ns(sum.total));
            row.self_ns = row
                .self_ns
                .saturating_add(trace.clocks().duration_ns(sum.own));
        }
        if row.calls + row.ended > 0 {
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
    let mut table = Table::new(&[numbers.as_slice(), &names].concat());
    for row in rows {
        let timed = |text: String| if row.ended > 0 { text } else { "-".to_string() };
        table.row(vec![
            timed(duration(row.total_ns)),
            timed(percent(row.total_ns, all)),
            timed(duration(row.self_ns)),
            count(row.calls),
            timed(duration(row.total_ns / row.ended.max(1))),
            row.function.clone(),
            row.module.clone(),
        ]);
    }
    table.write(out, width)
}
