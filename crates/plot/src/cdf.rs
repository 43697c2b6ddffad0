//! Cumulative distributions.

use anyhow::Result;
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::hist::{By, Group, distributions};
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::text::count;
use nopal_analysis::values::ValueSelection;
use nopal_trace::Trace;

use crate::Picture;
use crate::axis::{Axis, AxisScale, Unit};
use crate::canvas::COLORS;
use crate::lines::{Field, Labels};

/// One curve for each group, as many as there are colours.
pub fn draw(
    trace: &Trace,
    names: &Names,
    what: &ValueSelection,
    filter: &Filter,
    by: By,
    scale: AxisScale,
    drive: &Drive,
) -> Result<Picture> {
    let (all, notes) = distributions(trace, names, what, filter, by, drive)?;
    let groups = &all[..all.len().min(COLORS.len())];
    let mut caption = vec![of_which(trace, what, groups, all.len())];
    caption.extend(losses::line(trace));
    caption.extend(notes);
    let legend = match groups {
        [_] => Vec::new(),
        groups => groups.iter().map(|group| group.name.clone()).collect(),
    };
    let (x, label) = value_axis(what, groups, scale);
    // A single curve counts calls; several are compared by parts.
    let whole = match groups {
        [group] => group.distribution.count() as f64,
        _ => 100.0,
    };
    let y_label = match groups {
        [_] => format!("{} up to this value", what.noun()),
        _ => format!("percent of {} up to this value", what.noun()),
    };
    let y = Axis::counts(whole);
    let mut field = Field::new(
        x,
        y,
        &Labels {
            title: &format!("{}: cumulative distribution", what.text),
            x: &label,
            y: &y_label,
            legend,
            caption,
        },
    );
    for (number, group) in groups.iter().enumerate() {
        let scale = whole / group.distribution.count() as f64;
        let mut points = vec![(group.distribution.least() as f64, 0.0)];
        let mut below = 0;
        for (value, count) in group.distribution.values() {
            below += count;
            points.push((value as f64, below as f64 * scale));
        }
        field.steps(&points, number);
    }
    Ok(field.finish())
}

/// One line that describes the shown part of a trace.
pub fn of_which(trace: &Trace, what: &ValueSelection, groups: &[Group], all: usize) -> String {
    let noun = what.noun();
    let number: u64 = groups.iter().map(|group| group.distribution.count()).sum();
    let more = match all - groups.len() {
        0 => String::new(),
        more => format!("; {more} groups with fewer {noun} are left out"),
    };
    let command = trace.session().command.join(" ");
    format!("{} {noun}{more}. {command}", count(number))
}

/// An axis for the values of some groups, and its label.
pub fn value_axis(what: &ValueSelection, groups: &[Group], scale: AxisScale) -> (Axis, String) {
    let least = groups.iter().map(|group| group.distribution.least()).min();
    let most = groups.iter().map(|group| group.distribution.most()).max();
    let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
    let unit = unit_of(what);
    let axis = Axis::values(least as f64, most as f64, scale, unit);
    let scale = if axis.is_log() { " (logarithmic)" } else { "" };
    (axis, format!("{}{scale}", name_of(what)))
}

pub fn unit_of(what: &ValueSelection) -> Unit {
    if what.is_time() {
        Unit::Nanoseconds
    } else {
        Unit::Number
    }
}

/// `duration of read`, `read.result`.
pub fn name_of(what: &ValueSelection) -> String {
    match what.is_duration() {
        true => format!("duration of {}", what.text.trim_end_matches(".duration")),
        false => what.text.clone(),
    }
}
