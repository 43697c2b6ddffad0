//! The report by function.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io::{self, Write};

use anyhow::Result;
use nopal_trace::Trace;

use super::objects::Objects;
use super::stats::Stats;
use crate::drive::Drive;
use crate::names::Names;
use crate::text::{Align, Table, bound, count, duration};
use crate::waits::{InCall, OF_SOME, Parts};

/// A function. `total_ns`, which leaves out calls inside a call of the same function, and `self_ns` are of all calls: of
/// those that did not end, or began before tracing, as much as is known. The other times are of calls that began and
/// ended, 0 without any. Quantiles are exact to 0.8 %.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The function's number in [`Names`].
    pub number: u32,
    pub function: String,
    pub module: String,
    pub calls: u64,
    pub unfinished: u64,
    /// The number of calls with these times.
    pub timed: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    /// The time may be longer.
    pub total_is_least: bool,
    pub self_is_least: bool,
    pub min_ns: u64,
    pub avg_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// Off the processor, in nanoseconds, of `total_ns` and of `self_ns`; none if that was not recorded.
    pub waited: Option<InCall>,
    /// Upper bounds of net times: total and self including the cost of recording.
    pub gross_ns: Option<(u64, u64)>,
}

impl Row {
    fn has_times(&self) -> bool {
        self.timed + self.unfinished > 0
    }

    /// The parts of the total time on the processor and off it.
    fn parts(&self) -> Option<Parts> {
        Some(self.waited?.total.parts_of(self.total_ns))
    }
}

/// The order of rows, the largest first; names ascend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    Calls,
    #[default]
    Total,
    Own,
    Cpu,
    Wait,
    Min,
    Average,
    P50,
    P99,
    Max,
    Unfinished,
    Function,
    Module,
}

impl Sort {
    pub const ALL: [(&str, Sort); 13] = [
        ("calls", Sort::Calls),
        ("total", Sort::Total),
        ("self", Sort::Own),
        ("cpu", Sort::Cpu),
        ("wait", Sort::Wait),
        ("min", Sort::Min),
        ("avg", Sort::Average),
        ("p50", Sort::P50),
        ("p99", Sort::P99),
        ("max", Sort::Max),
        ("unfinished", Sort::Unfinished),
        ("function", Sort::Function),
        ("module", Sort::Module),
    ];

    pub fn named(name: &str) -> Option<Sort> {
        Sort::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, sort)| *sort)
    }

    fn value(self, row: &Row) -> u64 {
        match self {
            Sort::Calls => row.calls,
            Sort::Total => row.total_ns,
            Sort::Own => row.self_ns,
            Sort::Cpu => row.parts().map_or(0, |parts| parts.cpu),
            Sort::Wait => row.parts().map_or(0, |parts| parts.wait),
            Sort::Min => row.min_ns,
            Sort::Average => row.avg_ns,
            Sort::P50 => row.p50_ns,
            Sort::P99 => row.p99_ns,
            Sort::Max => row.max_ns,
            Sort::Unfinished => row.unfinished,
            Sort::Function | Sort::Module => 0,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub rows: Vec<Row>,
    /// Rows removed by [`Report::limit`].
    pub left_out: usize,
}

/// Sums up all calls of a trace, by total time.
pub fn functions(trace: &Trace, drive: &Drive) -> Result<Report> {
    let names = Names::new(trace);
    let mut workers: Vec<Stats> = (0..drive.workers.max(1))
        .map(|_| Stats::new(names.sites()))
        .collect();
    drive.run(trace, &mut workers)?;
    let sums = Stats::by_function(&workers, &names);
    let ns = |ticks| trace.clocks().duration_ns(ticks);
    let rows = (0u32..)
        .zip(names.functions())
        .zip(&sums)
        .filter(|(_, sum)| sum.calls + u64::from(sum.totals.unfinished) > 0);
    let rows = rows.map(|((number, function), sum)| {
        let totals = &sum.totals;
        let mut row = Row {
            number,
            function: function.name.clone(),
            module: function.module.clone(),
            calls: sum.calls,
            unfinished: totals.unfinished.into(),
            timed: sum.durations.count(),
            total_ns: ns(totals.total.max(totals.own)),
            self_ns: ns(totals.own),
            total_is_least: totals.total_is_least || totals.own > totals.total,
            self_is_least: totals.own_is_least,
            waited: drive.waits.map(|_| InCall {
                total: sum.waited.total.map(ns),
                own: sum.waited.own.map(ns),
            }),
            ..Row::default()
        };
        if let Some(average) = ns(totals.all).checked_div(row.timed) {
            let [p50, p99] = sum.durations.quantiles([0.5, 0.99]);
            row.min_ns = ns(totals.min);
            row.avg_ns = average;
            row.p50_ns = ns(p50.clamp(totals.min, totals.max));
            row.p99_ns = ns(p99.clamp(totals.min, totals.max));
            row.max_ns = ns(totals.max);
        }
        row
    });
    let mut report = Report {
        rows: rows.collect(),
        left_out: 0,
    };
    report.sort(Sort::default());
    Ok(report)
}

impl Report {
    pub fn sort(&mut self, by: Sort) {
        self.rows.sort_by(|a, b| {
            let names = |row: &Row| (row.function.clone(), row.module.clone());
            let modules = match by {
                Sort::Module => a.module.cmp(&b.module),
                _ => Ordering::Equal,
            };
            // Where there are no times.
            let calls = match by {
                Sort::Function | Sort::Module => Ordering::Equal,
                _ => b.calls.cmp(&a.calls),
            };
            by.value(b)
                .cmp(&by.value(a))
                .then(modules)
                .then(calls)
                .then_with(|| names(a).cmp(&names(b)))
        });
    }

    /// Tells rows of net times what they are in a report of the same trace with all that was recorded.
    pub fn bound_by(&mut self, gross: &Report) {
        let rows = gross.rows.iter();
        let by_name: HashMap<(&str, &str), (u64, u64)> = rows
            .map(|row| {
                let name = (row.function.as_str(), row.module.as_str());
                (name, (row.total_ns, row.self_ns))
            })
            .collect();
        for row in &mut self.rows {
            let name = (row.function.as_str(), row.module.as_str());
            row.gross_ns = by_name.get(&name).copied();
        }
    }

    /// Whether any call has a duration, as far as that is known.
    pub fn has_times(&self) -> bool {
        self.rows.iter().any(Row::has_times)
    }

    /// Whether time on and off processors is told apart.
    pub fn has_waits(&self) -> bool {
        self.rows.iter().any(|row| row.waited.is_some())
    }

    /// Keeps the first rows only.
    pub fn limit(&mut self, rows: usize) {
        self.left_out += self.rows.len().saturating_sub(rows);
        self.rows.truncate(rows);
    }

    pub fn write_table(&self, out: &mut dyn Write, width: usize) -> io::Result<()> {
        let unfinished = self.rows.iter().any(|row| row.unfinished > 0);
        let mut columns = vec!["total", "self"];
        if self.has_waits() {
            columns.extend(["cpu", "wait"]);
        }
        columns.extend(["calls", "min", "avg", "p50", "p99", "max"]);
        let mut columns: Vec<_> = columns
            .into_iter()
            .map(|name| (name, Align::Right))
            .collect();
        if unfinished {
            columns.push(("unfinished", Align::Right));
        }
        columns.extend([("function", Align::Left), ("module", Align::Left)]);
        let mut table = Table::new(&columns).give_way(&[
            "min",
            "p50",
            "p99",
            "avg",
            "max",
            "module",
            "unfinished",
        ]);
        for row in &self.rows {
            let sum = |ns, is_least| match row.has_times() {
                true => bound(ns, is_least),
                false => "-".to_string(),
            };
            let time = |ns| match row.timed {
                0 => "-".to_string(),
                _ => duration(ns),
            };
            let total = sum(row.total_ns, row.total_is_least);
            let own = sum(row.self_ns, row.self_is_least);
            let [min, avg, p50, p99, max] =
                [row.min_ns, row.avg_ns, row.p50_ns, row.p99_ns, row.max_ns].map(time);
            let mut cells = vec![total, own];
            if let Some(parts) = row.parts() {
                let are_least = row.total_is_least || parts.are_least;
                cells.extend([parts.cpu, parts.wait].map(|ns| sum(ns, are_least)));
            }
            cells.extend([count(row.calls), min, avg, p50, p99, max]);
            if unfinished {
                cells.push(count(row.unfinished));
            }
            cells.extend([row.function.clone(), row.module.clone()]);
            table.row(cells);
        }
        table.write(out, width)?;
        if self.left_out > 0 {
            writeln!(out, "({} more)", count(self.left_out as u64))?;
        }
        if self
            .rows
            .iter()
            .any(|row| row.parts().is_some_and(|parts| parts.are_least))
        {
            writeln!(out, "{OF_SOME}")?;
        }
        if self.rows.iter().any(|row| row.self_is_least) {
            writeln!(
                out,
                "≥ may be more: the begin or end of some calls is not known; min to max are of the others"
            )?;
        }
        Ok(())
    }

    /// An array of objects, one a function. Where not all is in the trace, the first has the member `losses`, too.
    pub fn write_json(&self, trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
        let mut objects = Objects::new(trace, out);
        for row in &self.rows {
            objects.begin("function", &row.function)?;
            objects.text("module", &row.module);
            objects.numbers(&[
                ("calls", row.calls),
                ("total_ns", row.total_ns),
                ("self_ns", row.self_ns),
                ("min_ns", row.min_ns),
                ("avg_ns", row.avg_ns),
                ("p50_ns", row.p50_ns),
                ("p99_ns", row.p99_ns),
                ("max_ns", row.max_ns),
                ("unfinished", row.unfinished),
            ]);
            if let Some(InCall { total, own }) = row.waited {
                objects.waited(row.total_ns, total);
                let parts = own.parts_of(row.self_ns);
                objects.numbers(&[("self_cpu_ns", parts.cpu), ("self_wait_ns", parts.wait)]);
            }
            if let Some((total, own)) = row.gross_ns {
                objects.numbers(&[("gross_total_ns", total), ("gross_self_ns", own)]);
            }
            objects.flags(&[
                ("total_is_least", row.total_is_least),
                ("self_is_least", row.self_is_least),
                ("entries_only", !row.has_times()),
            ]);
        }
        objects.end()
    }
}
