//! The report by function.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use anyhow::Result;
use nopal_trace::Trace;

use super::histogram::{Together, bucket_of};
use super::objects::Objects;
use super::samples::{Recording, Ticks, sampled};
use super::stats::Stats;
use crate::drive::Drive;
use crate::filter::Filter;
use crate::names::Names;
use crate::off::{COUNTED, ESTIMATED, OFF, Off, WITH_UNTIMED, is_of_some_threads, with_untimed};
use crate::sort;
use crate::text::{Align, Table, bound, bound_count, count, duration, estimate};
use crate::waits::{InCall, PARTS, Parts, write_of_some};

/// A function. `total_ns`, which leaves out calls inside a call of the same function, and `self_ns` are of all calls;
/// calls that did not end, or began before tracing, count as far as known. The other times are of calls that began and
/// ended, 0 without any. Quantiles are exact to 0.8 %.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The function's number in [`Names`].
    pub number: u32,
    pub function: String,
    pub module: String,
    pub calls: u64,
    /// The calls that were only counted. No other field includes them, except `calls` and `estimate`.
    pub counted: u64,
    /// The times with those of counted calls, where enough of these were sampled.
    pub estimate: Option<Estimate>,
    pub unfinished: u64,
    /// Further calls, which were left out at recording since they were short. No other field includes them.
    pub short: u64,
    /// The number of calls with these times.
    pub timed: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    /// The time may be longer.
    pub total_is_least: bool,
    pub self_is_least: bool,
    /// The self time may have in it that of callees that were not timed.
    pub self_with_untimed: bool,
    pub min_ns: u64,
    pub avg_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// The parts of `total_ns` and of `self_ns` off the processor, in nanoseconds; none if these were not recorded.
    pub waited: Option<InCall>,
    /// How long it was off, to hold a budget: its calls in this time are missing.
    pub off_ns: u64,
    /// There may be more calls.
    pub calls_are_least: bool,
    /// Upper bounds of net times: total and self including the cost of recording.
    pub gross_ns: Option<(u64, u64)>,
}

/// The total and self time of all calls, of which some were only counted, in nanoseconds, with their standard errors, and
/// how many calls were sampled. The self time has in it the time of callees that were not timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    pub total_ns: u64,
    pub total_error_ns: u64,
    pub self_ns: u64,
    pub self_error_ns: u64,
    pub samples: u64,
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

/// The order of rows, the largest first; names ascend. An estimated time counts as what it is at least by its error.
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
            Sort::Calls => row.calls.saturating_add(row.short),
            Sort::Total => row.estimate.map_or(row.total_ns, |all| {
                row.total_ns
                    .max(all.total_ns.saturating_sub(all.total_error_ns))
            }),
            Sort::Own => row.estimate.map_or(row.self_ns, |all| {
                row.self_ns
                    .max(all.self_ns.saturating_sub(all.self_error_ns))
            }),
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
    summed_up(trace, drive, |_, _| {})
}

/// The durations of a function's calls: the middle of each bucket of nanoseconds, which are the same in all traces, and
/// how many calls fall into it. Ascending; exact to 1.6 %.
pub type Durations = BTreeMap<u64, u64>;

/// The same, and the durations of each function by its number.
pub fn functions_and_durations(
    trace: &Trace,
    drive: &Drive,
) -> Result<(Report, BTreeMap<u32, Durations>)> {
    let mut all = BTreeMap::new();
    let report = summed_up(trace, drive, |number, together| {
        let durations: &mut Durations = all.entry(number).or_default();
        for (ticks, calls) in together.buckets().filter(|(_, calls)| *calls > 0) {
            let bucket = bucket_of(trace.clocks().duration_ns(ticks));
            *durations.entry(bucket).or_default() += calls;
        }
    })?;
    Ok((report, all))
}

/// Passes `each` the durations of each function that was called.
fn summed_up(trace: &Trace, drive: &Drive, mut each: impl FnMut(u32, &Together)) -> Result<Report> {
    let names = Names::new(trace);
    let workers = Stats::of(trace, &names, drive)?;
    let sums = Stats::by_function(&workers, &names);
    let off = Off::new(trace, &names, drive.filter);
    let samples = sampled(trace, &names, drive)?;
    let recording = Recording::of(trace, drive);
    let ns = |ticks| trace.clocks().duration_ns(ticks);
    // If threads are selected, none is known of a function that was off, or counted, all the time.
    let has_threads = drive.filter.is_some_and(Filter::has_threads) || is_of_some_threads(trace);
    let selected = drive.filter.map(|filter| filter.functions(&names));
    let is_all = |number: u32| {
        let functions = selected.as_ref();
        !has_threads && functions.is_none_or(|functions| functions[number as usize])
    };
    let rows = (0u32..).zip(names.functions()).zip(&sums);
    let rows = rows.filter(|((number, _), sum)| {
        let seen = sum.calls + u64::from(sum.totals.unfinished) + sum.short > 0;
        seen || is_all(*number) && off.hides_calls(*number)
    });
    let rows = rows.map(|((number, function), sum)| {
        each(number, &sum.durations);
        let totals = &sum.totals;
        let lacks_calls = off.lacks_calls(number);
        let mut row = Row {
            number,
            function: function.name.clone(),
            module: function.module.clone(),
            calls: sum.calls.saturating_add(off.counted(number)),
            counted: off.counted(number),
            unfinished: totals.unfinished.into(),
            short: sum.short,
            timed: sum.durations.count(),
            total_ns: ns(totals.total.max(totals.own)),
            self_ns: ns(totals.own),
            total_is_least: totals.total_is_least || totals.own > totals.total || lacks_calls,
            self_is_least: totals.own_is_least || lacks_calls,
            self_with_untimed: off.may_be_in_self(totals.total, totals.own),
            off_ns: off.of(number),
            calls_are_least: off.calls_are_least(number),
            waited: drive.waits.map(|_| InCall {
                total: sum.waited.total.map(ns),
                own: sum.waited.own.map(ns),
            }),
            ..Row::default()
        };
        let sampled = samples.get(number as usize);
        // There were more calls, of which nothing is known.
        let sampled = sampled.filter(|_| !row.calls_are_least);
        row.estimate = sampled.and_then(|sampled| {
            let [total, own] = sampled.estimate(row.counted, recording?)?;
            let sum = |of: Ticks, recorded: u64| recorded.saturating_add(ns(of.sum as u64));
            Some(Estimate {
                total_ns: sum(total, row.total_ns),
                total_error_ns: ns(total.error as u64),
                self_ns: sum(own, row.self_ns),
                self_error_ns: ns(own.error as u64),
                samples: sampled.calls(),
            })
        });
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
        sort::by(&mut self.rows, |a, b| {
            let names = |row: &Row| (row.function.clone(), row.module.clone());
            let modules = match by {
                Sort::Module => a.module.cmp(&b.module),
                _ => Ordering::Equal,
            };
            // Used if there are no times.
            let all = |row: &Row| row.calls.saturating_add(row.short);
            let calls = match by {
                Sort::Function | Sort::Module => Ordering::Equal,
                _ => all(b).cmp(&all(a)),
            };
            by.value(b)
                .cmp(&by.value(a))
                .then(modules)
                .then(calls)
                .then_with(|| names(a).cmp(&names(b)))
        });
    }

    /// Gives rows of net times their upper bounds, from a report of the same trace with the cost of recording.
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

    /// Whether calls were recorded, all of them without durations.
    pub fn lacks_times(&self) -> bool {
        !self.has_times() && self.rows.iter().any(|row| row.calls > row.counted)
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
        let any_off = self.rows.iter().any(|row| row.off_ns > 0);
        let any_counted = self.rows.iter().any(|row| row.counted > 0);
        let mut columns = vec!["total", "self"];
        if self.has_waits() {
            columns.extend(PARTS);
        }
        columns.push("calls");
        if any_counted {
            columns.push("counted");
        }
        let short = self.rows.iter().any(|row| row.short > 0);
        if short {
            columns.push("left out");
        }
        columns.extend(["min", "avg", "p50", "p99", "max"]);
        let mut columns: Vec<_> = columns
            .into_iter()
            .map(|name| (name, Align::Right))
            .collect();
        if unfinished {
            columns.push(("unfinished", Align::Right));
        }
        if any_off {
            columns.push(("off", Align::Right));
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
            let (total, own) = match row.estimate {
                Some(all) => (
                    estimate(all.total_ns, all.total_error_ns),
                    estimate(all.self_ns, all.self_error_ns),
                ),
                None => (
                    sum(row.total_ns, row.total_is_least),
                    sum(row.self_ns, row.self_is_least),
                ),
            };
            let [min, avg, p50, p99, max] =
                [row.min_ns, row.avg_ns, row.p50_ns, row.p99_ns, row.max_ns].map(time);
            let mut cells = vec![total, with_untimed(own, row.self_with_untimed)];
            if let Some(parts) = row.parts() {
                cells.extend(parts.cells(row.total_is_least, sum));
            }
            cells.push(bound_count(row.calls, row.calls_are_least));
            if any_counted {
                cells.push(match row.counted {
                    0 => "-".to_string(),
                    calls => count(calls),
                });
            }
            if short {
                cells.push(count(row.short));
            }
            cells.extend([min, avg, p50, p99, max]);
            if unfinished {
                cells.push(count(row.unfinished));
            }
            if any_off {
                cells.push(match row.off_ns {
                    0 => "-".to_string(),
                    ns => duration(ns),
                });
            }
            cells.extend([row.function.clone(), row.module.clone()]);
            table.row(cells);
        }
        table.write(out, width)?;
        if self.left_out > 0 {
            writeln!(out, "({} more)", count(self.left_out as u64))?;
        }
        write_of_some(self.rows.iter().map(Row::parts), out)?;
        // Functions that were off or counted have a line of their own.
        let is_known = |row: &Row| row.off_ns > 0 || row.counted > 0;
        let is_bounded = |row: &Row| row.self_is_least && !is_known(row) || row.unfinished > 0;
        if self.rows.iter().any(is_bounded) {
            writeln!(
                out,
                "≥ may be more: the begin or end of some calls is not known; min to max are of the others"
            )?;
        }
        if any_off {
            writeln!(out, "{OFF}")?;
        }
        if any_counted {
            writeln!(out, "{COUNTED}")?;
        }
        if self.rows.iter().any(|row| row.estimate.is_some()) {
            writeln!(out, "{ESTIMATED}")?;
        }
        if self.rows.iter().any(|row| row.self_with_untimed) {
            writeln!(out, "{WITH_UNTIMED}")?;
        }
        Ok(())
    }

    /// An array of objects, one a function. If the trace is incomplete, the first has the member `losses`, too.
    pub fn write_json(&self, trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
        let mut objects = Objects::new(trace, out);
        for row in &self.rows {
            objects.begin("function", &row.function)?;
            objects.text("module", &row.module);
            objects.numbers(&[
                ("calls", row.calls),
                ("total_ns", row.total_ns),
                ("self_ns", row.self_ns),
            ]);
            let of_timed = [
                ("min_ns", row.min_ns),
                ("avg_ns", row.avg_ns),
                ("p50_ns", row.p50_ns),
                ("p99_ns", row.p99_ns),
                ("max_ns", row.max_ns),
            ];
            objects.numbers_if(row.timed > 0, &of_timed);
            objects.numbers(&[("unfinished", row.unfinished)]);
            if row.counted > 0 {
                objects.numbers(&[("counted", row.counted)]);
            }
            if let Some(all) = row.estimate {
                objects.numbers(&[
                    ("estimated_total_ns", all.total_ns),
                    ("estimated_total_error_ns", all.total_error_ns),
                    ("estimated_self_ns", all.self_ns),
                    ("estimated_self_error_ns", all.self_error_ns),
                    ("samples", all.samples),
                ]);
            }
            if row.off_ns > 0 {
                objects.numbers(&[("off_ns", row.off_ns)]);
            }
            if row.short > 0 {
                objects.numbers(&[("left_out", row.short)]);
            }
            if let Some(waited) = row.waited {
                objects.waited_in_calls(row.total_ns, row.self_ns, waited);
            }
            if let Some((total, own)) = row.gross_ns {
                objects.numbers(&[("gross_total_ns", total), ("gross_self_ns", own)]);
            }
            objects.flags(&[
                ("total_is_least", row.total_is_least),
                ("self_is_least", row.self_is_least),
                ("self_with_untimed_callees", row.self_with_untimed),
                ("calls_are_least", row.calls_are_least),
                ("entries_only", row.calls > row.counted && !row.has_times()),
            ]);
        }
        objects.end()
    }
}
