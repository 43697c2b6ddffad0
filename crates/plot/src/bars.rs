//! Histograms.

use anyhow::Result;
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::hist::{By, Scale, bars, distributions};
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::values::ValueSelection;
use nopal_trace::Trace;

use crate::Picture;
use crate::axis::{Axis, AxisScale};
use crate::cdf::{name_of, of_which, unit_of};
use crate::lines::{Field, Labels};

/// A histogram of all values together.
pub fn draw(
    trace: &Trace,
    names: &Names,
    what: &ValueSelection,
    filter: &Filter,
    scale: AxisScale,
    drive: &Drive,
) -> Result<Picture> {
    let (groups, notes) = distributions(trace, names, what, filter, By::Nothing, drive)?;
    let distribution = &groups[0].distribution;
    let (least, most) = (distribution.least() as f64, distribution.most() as f64);
    let x = Axis::values(least, most, scale, unit_of(what));
    let bars = match x.is_log() {
        true => bars(distribution, Scale::Log2),
        false => bars(distribution, Scale::Linear),
    };
    // Bars end where the next one begins.
    let first = bars.first().map_or(0.0, |bar| bar.from as f64);
    let last = bars.last().map_or(0.0, |bar| bar.to as f64 + 1.0);
    let scale = if x.is_log() {
        AxisScale::Log
    } else {
        AxisScale::Linear
    };
    let x = Axis::values(first, last, scale, unit_of(what));
    let highest = bars.iter().map(|bar| bar.count).max().unwrap_or(0);
    let y = Axis::counts(highest as f64);
    let note = if x.is_log() { " (logarithmic)" } else { "" };
    let mut caption = vec![of_which(trace, what, &groups, groups.len())];
    caption.extend(losses::line(trace));
    caption.extend(notes);
    let mut field = Field::new(
        x,
        y,
        &Labels {
            title: &format!("{}: histogram", what.text),
            x: &format!("{}{note}", name_of(what)),
            y: what.noun(),
            legend: Vec::new(),
            caption,
        },
    );
    for bar in &bars {
        field.bar(bar.from as f64, bar.to as f64 + 1.0, bar.count as f64, 0);
    }
    Ok(field.finish())
}
