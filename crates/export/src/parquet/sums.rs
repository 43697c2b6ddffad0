//! The small tables: a row for each trace, function, and bucket of a function's durations.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use nopal_analysis::drive::Drive;
use nopal_analysis::losses;
use nopal_analysis::names::printable;
use nopal_analysis::report::{Durations, Report, Row, functions_and_durations};
use nopal_analysis::span::{begin, end};
use nopal_trace::Trace;

use super::file::{Column, Kind, Layout, RowGroup, TableFile};

const fn column(name: &'static str, kind: Kind) -> Column {
    Column {
        name,
        kind,
        is_optional: false,
    }
}

const TRACES: [Column; 7] = [
    column("trace", Kind::Text),
    column("command", Kind::Text),
    column("begin_ns", Kind::Number),
    column("end_ns", Kind::Number),
    column("is_part", Kind::Small),
    column("lost_events", Kind::Number),
    Column {
        name: "losses",
        kind: Kind::Text,
        is_optional: true,
    },
];

/// Writes the identity of the trace, whether a part of it was selected, and its losses.
pub fn write_trace(trace: &Trace, drive: &Drive, out: impl Write + Send) -> Result<()> {
    let layout = Layout::new(&TRACES, None)?;
    let mut group = RowGroup::new(&layout);
    let at = |counter| [Some(trace.clocks().realtime_ns(counter))].into_iter();
    let is_part = drive.filter.is_some_and(|filter| !filter.is_everything());
    let losses = losses::line(trace);
    group.texts(&[Some(&trace.uuid().to_string())])?;
    group.texts(&[Some(&printable(&trace.session().command.join(" ")))])?;
    group.numbers(at(begin(trace)))?;
    group.numbers(at(end(trace)))?;
    group.flags([is_part].into_iter())?;
    group.numbers([Some(trace.lost())].into_iter())?;
    group.texts(&[losses.as_deref()])?;
    finish(&layout, group, out)
}

const FUNCTIONS: [Column; 15] = [
    column("trace", Kind::Text),
    column("module", Kind::Text),
    column("function", Kind::Text),
    column("calls", Kind::Number),
    column("timed", Kind::Number),
    column("unfinished", Kind::Number),
    column("left_out", Kind::Number),
    column("total_ns", Kind::Number),
    column("self_ns", Kind::Number),
    column("min_ns", Kind::Number),
    column("max_ns", Kind::Number),
    column("total_is_least", Kind::Small),
    column("self_is_least", Kind::Small),
    column("off_ns", Kind::Number),
    column("counted", Kind::Number),
];

const DURATIONS: [Column; 5] = [
    column("trace", Kind::Text),
    column("module", Kind::Text),
    column("function", Kind::Text),
    column("duration_ns", Kind::Number),
    column("calls", Kind::Number),
];

/// The functions of a trace, and the durations of their calls.
pub struct Functions {
    trace: String,
    report: Report,
    durations: BTreeMap<u32, Durations>,
}

impl Functions {
    pub fn new(trace: &Trace, drive: &Drive) -> Result<Functions> {
        let (report, durations) = functions_and_durations(trace, drive)?;
        Ok(Functions {
            trace: trace.uuid().to_string(),
            report,
            durations,
        })
    }

    pub fn write(&self, out: impl Write + Send) -> Result<()> {
        let layout = Layout::new(&FUNCTIONS, None)?;
        let mut group = RowGroup::new(&layout);
        let rows = || self.report.rows.iter();
        self.names(&mut group, &rows().collect::<Vec<_>>())?;
        let numbers: [fn(&Row) -> u64; 8] = [
            |row| row.calls,
            |row| row.timed,
            |row| row.unfinished,
            |row| row.short,
            |row| row.total_ns,
            |row| row.self_ns,
            |row| row.min_ns,
            |row| row.max_ns,
        ];
        for number in numbers {
            group.numbers(rows().map(|row| Some(number(row))))?;
        }
        group.flags(rows().map(|row| row.total_is_least))?;
        group.flags(rows().map(|row| row.self_is_least))?;
        group.numbers(rows().map(|row| Some(row.off_ns)))?;
        group.numbers(rows().map(|row| Some(row.counted)))?;
        finish(&layout, group, out)
    }

    /// The first columns: the trace, and the functions of these rows.
    fn names<'r>(&'r self, group: &mut RowGroup, rows: &[&'r Row]) -> Result<()> {
        let texts = |text: &dyn Fn(&'r Row) -> &'r str| -> Vec<Option<&'r str>> {
            rows.iter().map(|row| Some(text(row))).collect()
        };
        group.texts(&texts(&|_| &self.trace))?;
        group.texts(&texts(&|row| &row.module))?;
        group.texts(&texts(&|row| &row.function))
    }

    pub fn write_durations(&self, out: impl Write + Send) -> Result<()> {
        let layout = Layout::new(&DURATIONS, None)?;
        let mut group = RowGroup::new(&layout);
        let buckets = || {
            self.report.rows.iter().flat_map(|row| {
                let durations = self.durations.get(&row.number).into_iter().flatten();
                durations.map(move |(duration, calls)| (row, *duration, *calls))
            })
        };
        let rows: Vec<&Row> = buckets().map(|(row, ..)| row).collect();
        self.names(&mut group, &rows)?;
        group.numbers(buckets().map(|(_, duration, _)| Some(duration)))?;
        group.numbers(buckets().map(|(.., calls)| Some(calls)))?;
        finish(&layout, group, out)
    }
}

/// Writes a file of one row group; of none if the group has no rows.
fn finish(layout: &Layout, group: RowGroup, out: impl Write + Send) -> Result<()> {
    let mut file = TableFile::new(out, layout)?;
    if !group.is_empty() {
        file.append(group)?;
    }
    file.finish()
}
