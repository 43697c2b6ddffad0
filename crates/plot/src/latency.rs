//! Values of calls, or cases of a tracer, over time.

use anyhow::{Context, Result};
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::hist::Distribution;
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::span::{begin, end};
use nopal_analysis::text::count;
use nopal_analysis::values::{Value, ValueSelection, ValueSink, collect_values};
use nopal_trace::{Clocks, Trace};

use crate::Picture;
use crate::axis::{Axis, AxisScale, Unit};
use crate::cdf::{name_of, unit_of};
use crate::lines::{Field, Labels};

/// Intervals of time for which values are summed up.
const COLUMNS: usize = 200;
const DIGITS: u8 = 2;
const SERIES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)];

/// The median and the 99th percentile as curves, with the band between them, and the largest values as dots.
pub fn draw(
    trace: &Trace,
    names: &Names,
    what: &ValueSelection,
    filter: &Filter,
    scale: AxisScale,
    drive: &Drive,
) -> Result<Picture> {
    let span = Span::of(trace, filter);
    let column = |counter: u64| span.part(counter, COLUMNS);
    let new = || Columns {
        column,
        columns: (0..COLUMNS).map(|_| None).collect(),
    };
    let mut columns: Vec<Option<Distribution>> = (0..COLUMNS).map(|_| None).collect();
    let (sinks, notes) = collect_values(trace, names, what, filter, drive, new)?;
    for sink in sinks {
        for (sum, column) in columns.iter_mut().zip(sink.columns) {
            match (sum.as_mut(), column) {
                (Some(sum), Some(column)) => sum.merge(&column)?,
                (None, column) => *sum = column,
                (_, None) => {}
            }
        }
    }
    let found = || columns.iter().flatten();
    let least = found().map(Distribution::least).min();
    let most = found().map(Distribution::most).max();
    let (least, most) = least.zip(most).context("no values")?;
    let y = Axis::values(least as f64, most as f64, scale, unit_of(what));
    let note = if y.is_log() { " (logarithmic)" } else { "" };
    let number: u64 = found().map(Distribution::count).sum();
    let mut caption = vec![format!(
        "{} {}, in {COLUMNS} parts of the time. {}",
        count(number),
        what.noun(),
        trace.session().command.join(" ")
    )];
    caption.extend(losses::line(trace));
    caption.extend(notes);
    let mut field = Field::new(
        span.axis(),
        y,
        &Labels {
            title: &format!("{} over time", what.text),
            x: &Span::label(what),
            y: &format!("{}{note}", name_of(what)),
            legend: SERIES.map(|(name, _)| name.to_string()).into(),
            caption,
        },
    );
    // Curves end at columns without values.
    let mut parts: Vec<[Vec<(f64, f64)>; 3]> = Vec::new();
    let mut gap = true;
    for (at, column) in columns.iter().enumerate() {
        let Some(column) = column else {
            gap = true;
            continue;
        };
        if std::mem::take(&mut gap) {
            parts.push(Default::default());
        }
        let middle = span.middle(at, COLUMNS);
        if let Some(part) = parts.last_mut() {
            for (points, (_, quantile)) in part.iter_mut().zip(SERIES) {
                points.push((middle, column.quantile(quantile) as f64));
            }
        }
    }
    for [half, most, all] in &parts {
        field.band(half, most, 0);
        for (number, points) in [half, most].into_iter().enumerate() {
            match points.as_slice() {
                [(x, y)] => field.dot(*x, *y, number),
                points => field.curve(points, number),
            }
        }
        all.iter().for_each(|(x, y)| field.dot(*x, *y, 2));
    }
    Ok(field.finish())
}

/// The shown part of a trace's time, in nanoseconds of the monotonic clock.
pub struct Span<'a> {
    clocks: &'a Clocks,
    start: u64,
    from: u64,
    until: u64,
}

impl<'a> Span<'a> {
    pub fn of(trace: &'a Trace, filter: &Filter) -> Span<'a> {
        let clocks = trace.clocks();
        let start = clocks.monotonic_ns(begin(trace));
        let from = filter
            .from
            .map_or(start, |from| clocks.monotonic_ns(from).max(start));
        let until = clocks.monotonic_ns(filter.until.unwrap_or(end(trace)));
        Span {
            clocks,
            start,
            from,
            until: until.max(from.saturating_add(1)),
        }
    }

    /// The number of the equal part that holds a moment.
    pub fn part(&self, counter: u64, parts: usize) -> usize {
        let ns = self.clocks.monotonic_ns(counter).saturating_sub(self.from);
        let at = u128::from(ns) * parts as u128 / u128::from(self.until - self.from);
        (at as usize).min(parts - 1)
    }

    /// The middle of a part, on the axis.
    fn middle(&self, part: usize, parts: usize) -> f64 {
        let width = (self.until - self.from) as f64 / parts as f64;
        (self.from - self.start) as f64 + (part as f64 + 0.5) * width
    }

    pub fn label(what: &ValueSelection) -> String {
        let begin = match what.noun() {
            "calls" => "begin of the call,",
            "cases" => "begin of the case,",
            _ => "time",
        };
        format!("{begin} since the trace's beginning")
    }

    /// Since the beginning of the trace.
    pub fn axis(&self) -> Axis {
        let [from, until] = [self.from, self.until].map(|ns| (ns - self.start) as f64);
        Axis::new(from, until, AxisScale::Linear, Unit::Nanoseconds)
    }
}

struct Columns<F> {
    column: F,
    columns: Vec<Option<Distribution>>,
}

impl<F: Fn(u64) -> usize + Send> ValueSink for Columns<F> {
    fn add(&mut self, value: Value) {
        let at = (self.column)(value.begin);
        if self.columns[at].is_none() {
            self.columns[at] = Distribution::new(DIGITS).ok();
        }
        if let Some(column) = &mut self.columns[at] {
            column.add(value.value);
        }
    }
}
