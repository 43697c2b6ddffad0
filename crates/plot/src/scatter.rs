//! Each value of calls, or each case of a tracer, as a dot over time.

use anyhow::{Context, Result, ensure};
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::hist::{By, Group, Grouping, distributions, whereabouts};
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::text::{Quantity, count};
use nopal_analysis::values::{Value, ValueSelection, ValueSink, collect_values};
use nopal_trace::{ThreadInfo, Trace};

use crate::Picture;
use crate::axis::{Axis, AxisScale, Unit};
use crate::canvas::COLORS;
use crate::cdf::{name_of, of_which, unit_of};
use crate::latency::Span;
use crate::lines::{Field, Labels};

/// Places for dots, so that neither a picture nor the memory for drawing it grows with the trace.
const COLUMNS: usize = 500;
const ROWS: usize = 200;

/// The values to show; all without bounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Within {
    pub least: Option<i64>,
    pub most: Option<i64>,
}

impl Within {
    fn holds(&self, value: i64) -> bool {
        self.least.is_none_or(|least| value >= least) && self.most.is_none_or(|most| value <= most)
    }
}

/// A colour for each group, as many as there are colours; the groups with fewest values on top.
#[expect(clippy::too_many_arguments, reason = "what is drawn, and how")]
pub fn draw(
    trace: &Trace,
    names: &Names,
    what: &ValueSelection,
    filter: &Filter,
    by: By,
    within: Within,
    scale: AxisScale,
    drive: &Drive,
) -> Result<Picture> {
    let (all, mut notes) = distributions(trace, names, what, filter, by, drive)?;
    let groups = &all[..all.len().min(COLORS.len())];
    let span = Span::of(trace, filter);
    let y = value_axis(what, groups, within, scale)?;
    let whereabouts = whereabouts(trace, by)?;
    let new = || Dots {
        grouping: Grouping::new(by, whereabouts.as_ref()),
        keys: groups.iter().map(|group| group.key).collect(),
        span: &span,
        y,
        within,
        outside: 0,
        places: vec![false; groups.len() * COLUMNS * ROWS],
    };
    let mut places = vec![false; groups.len() * COLUMNS * ROWS];
    let mut outside = 0;
    for dots in collect_values(trace, names, what, filter, drive, new)?.0 {
        outside += dots.outside;
        for (sum, place) in places.iter_mut().zip(dots.places) {
            *sum |= place;
        }
    }
    ensure!(
        places.contains(&true),
        "{}: no value is within the bounds: they are from {} to {}",
        what.text,
        least(groups),
        most(groups)
    );
    if outside > 0 {
        notes.push(format!("left out: {} beyond the bounds", count(outside)));
    }
    let mut caption = vec![of_which(trace, what, groups, all.len())];
    caption.extend(losses::line(trace));
    caption.extend(notes);
    let note = if y.is_log() { " (logarithmic)" } else { "" };
    let mut field = Field::new(
        span.axis(),
        y,
        &Labels {
            title: &format!("{} over time", what.text),
            x: &Span::label(what),
            y: &format!("{}{note}", name_of(what)),
            legend: match groups {
                [_] => Vec::new(),
                groups => groups.iter().map(|group| group.name.clone()).collect(),
            },
            caption,
        },
    );
    for (number, places) in places.chunks_exact(COLUMNS * ROWS).enumerate() {
        let dots = places.iter().enumerate().filter(|(_, place)| **place);
        let middle = |at: usize, of: usize| (at as f64 + 0.5) / of as f64;
        let dots = dots.map(|(at, _)| (middle(at / ROWS, COLUMNS), middle(at % ROWS, ROWS)));
        field.dots(dots, number);
    }
    Ok(field.finish())
}

fn least(groups: &[Group]) -> i64 {
    let all = groups.iter().map(|group| group.distribution.least());
    all.min().unwrap_or(0)
}

fn most(groups: &[Group]) -> i64 {
    let all = groups.iter().map(|group| group.distribution.most());
    all.max().unwrap_or(0)
}

/// Registers have no type: if all values are this large, they are taken for addresses.
const ADDRESSES: i64 = 1 << 32;

fn value_axis(
    what: &ValueSelection,
    groups: &[Group],
    within: Within,
    scale: AxisScale,
) -> Result<Axis> {
    groups.first().context("no values")?;
    let (least, most) = (least(groups), most(groups));
    let from = within.least.map_or(least, |bound| bound.max(least));
    let to = within.most.map_or(most, |bound| bound.min(most));
    let (from, to) = (from as f64, to.max(from) as f64);
    if what.quantity() == Quantity::Address || what.is_register() && least >= ADDRESSES {
        return Ok(Axis::new(from, to, scale, Unit::Address));
    }
    Ok(match within.least {
        Some(_) => Axis::new(from, to, scale, unit_of(what)),
        None => Axis::values(from, to, scale, unit_of(what)),
    })
}

struct Dots<'a> {
    grouping: Grouping<'a>,
    keys: Vec<u64>,
    span: &'a Span<'a>,
    y: Axis,
    within: Within,
    outside: u64,
    /// By group, column and row.
    places: Vec<bool>,
}

impl ValueSink for Dots<'_> {
    fn begin(&mut self, stream: usize, thread: &ThreadInfo) {
        self.grouping.begin(stream, thread);
    }

    fn add(&mut self, value: Value) {
        let key = self.grouping.key(&value);
        let Some(group) = self.keys.iter().position(|one| *one == key) else {
            return;
        };
        if !self.within.holds(value.value) {
            self.outside += 1;
            return;
        }
        let column = self.span.part(value.begin, COLUMNS);
        let row = (self.y.place(value.value as f64) * ROWS as f64) as usize;
        self.places[(group * COLUMNS + column) * ROWS + row.min(ROWS - 1)] = true;
    }
}
