//! Distributions as text.

use std::io::{self, Write};

use nopal_trace::{Losses, Trace};
use serde_json::{Value, json};

use super::bars::{Bar, Scale, bars};
use super::{Distribution, Group};
use crate::text::{count, percent, several};
use crate::values::ValueSelection;

const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];

/// Groups that are shown; the others are counted.
const SHOWN: usize = 20;
/// Columns that the longest bar takes at most.
const LONGEST: usize = 50;

pub fn write_text(
    out: &mut dyn Write,
    what: &ValueSelection,
    groups: &[Group],
    scale: Scale,
    width: usize,
) -> io::Result<()> {
    for (index, group) in groups.iter().take(SHOWN).enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_group(out, what, group, scale, width)?;
    }
    if groups.len() > SHOWN {
        writeln!(out, "\n({} more)", count((groups.len() - SHOWN) as u64))?;
    }
    Ok(())
}

fn write_group(
    out: &mut dyn Write,
    what: &ValueSelection,
    group: &Group,
    scale: Scale,
    width: usize,
) -> io::Result<()> {
    let distribution = &group.distribution;
    let of = match group.name.as_str() {
        "" => String::new(),
        name => format!(", {name}"),
    };
    let shown = |value| what.quantity().text(value);
    writeln!(
        out,
        "{}{of}: {}, from {} to {}, mean {}",
        what.text,
        several(distribution.count(), "value", "values"),
        shown(distribution.least()),
        shown(distribution.most()),
        shown(distribution.mean().round() as i64),
    )?;
    let quantiles = QUANTILES.map(|(name, quantile)| {
        let value = shown(distribution.quantile(quantile));
        format!("{name} {value}")
    });
    writeln!(out, "{}\n", quantiles.join("   "))?;
    write_bars(out, what, distribution, &bars(distribution, scale), width)
}

fn write_bars(
    out: &mut dyn Write,
    what: &ValueSelection,
    distribution: &Distribution,
    bars: &[Bar],
    width: usize,
) -> io::Result<()> {
    let shown = |value| what.quantity().text(value);
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0);
    let mut below = 0;
    writeln!(
        out,
        "{:>12}  {:>12}  {:>12}  {:>7}  {:>9}",
        "from", "to", "count", "of all", "up to it"
    )?;
    for bar in bars {
        below += bar.count;
        let part = percent(bar.count, distribution.count());
        let mut line = format!(
            "{:>12}  {:>12}  {:>12}  {part:>7}  {:>9}  ",
            shown(bar.from),
            shown(bar.to),
            count(bar.count),
            precise_percent(below, distribution.count())
        );
        let room = width.saturating_sub(line.len()).min(LONGEST);
        line.push_str(&blocks(bar.count, most, room));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A percentage of all values up to one: 100 % only if none is above.
fn precise_percent(part: u64, whole: u64) -> String {
    let text = format!("{:.3}", part as f64 * 100.0 / whole.max(1) as f64);
    let text = match text.as_str() {
        "100.000" if part < whole => "99.999",
        text => text,
    };
    format!("{text} %")
}

/// A bar of eighths of a column; any value above 0 is seen.
fn blocks(part: u64, most: u64, columns: usize) -> String {
    const PARTS: [char; 8] = ['█', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = part as f64 / most.max(1) as f64 * columns as f64 * 8.0;
    let eighths = (eighths.round() as usize).max(usize::from(part > 0));
    let mut text: String = std::iter::repeat_n(PARTS[0], eighths / 8).collect();
    if !eighths.is_multiple_of(8) {
        text.push(PARTS[eighths % 8]);
    }
    text
}

/// An object with the distributions, and their bars; `notes` are about the values that are missing. If the trace is
/// incomplete, it has the member `losses`.
pub fn write_json(
    out: &mut dyn Write,
    trace: &Trace,
    what: &ValueSelection,
    groups: &[Group],
    notes: &[String],
    scale: Scale,
) -> io::Result<()> {
    let groups: Vec<Value> = groups.iter().map(|group| as_json(group, scale)).collect();
    let unit = if what.is_time() { "ns" } else { "" };
    let mut all = json!({"what": what.text, "unit": unit, "groups": groups, "left_out": notes});
    let losses = Losses::of(trace);
    if !losses.is_none() {
        all["losses"] = json!(losses);
    }
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}

fn as_json(group: &Group, scale: Scale) -> Value {
    let distribution = &group.distribution;
    let bars: Vec<Value> = bars(distribution, scale)
        .iter()
        .map(|bar| json!({"from": bar.from, "to": bar.to, "count": bar.count}))
        .collect();
    let mut object = json!({
        "group": group.name,
        "count": distribution.count(),
        "min": distribution.least(),
        "max": distribution.most(),
        "mean": distribution.mean(),
        "bars": bars,
    });
    for (name, quantile) in QUANTILES {
        object[name] = distribution.quantile(quantile).into();
    }
    object
}
