//! A comparison as a table and as JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::{Comparison, MARGIN, Means, Row, Run, SIGNIFICANT, TESTED, Test};
use crate::off::{CALLS_OFF, WITH_UNTIMED, with_untimed};
use crate::text::{Align, Table, count, duration, several};

/// Stands between the cells of two sides.
const ARROW: &str = " → ";

/// Stands for a side that does not know a function, or has no times of it.
const NONE: &str = "-";

/// Writes the changes of all functions, the largest first. `per`: the function by whose calls numbers and times were
/// divided.
pub fn write_text(
    comparison: &Comparison,
    [before, after]: [&[Run]; 2],
    per: Option<&str>,
    out: &mut dyn Write,
    width: usize,
) -> io::Result<()> {
    for run in before.iter().chain(after) {
        if let Some((line, _)) = &run.losses {
            writeln!(out, "# {}: {line}", run.trace)?;
        }
    }
    for line in unlike(before, after) {
        writeln!(out, "# {line}")?;
    }
    let Comparison { rows, .. } = comparison;
    let (a, b) = (&comparison.before, &comparison.after);
    writeln!(
        out,
        "{}, all functions: self {}{}, calls {}",
        kind(before, after, per),
        times(Some(a.self_ns), Some(b.self_ns)),
        percent(a.self_ns, b.self_ns),
        pair(calls(Some(a)), calls(Some(b))),
    )?;
    let has_times = rows.iter().any(Row::has_times);
    if !has_times && !rows.is_empty() {
        writeln!(out, "# no times: only the entries of calls were recorded")?;
    }
    let columns = ["change", "self", "a call", "calls", "total", "p50", "p99"];
    let columns = columns.map(|name| (name, Align::Right));
    let others = [
        ("p", Align::Right),
        ("function", Align::Left),
        ("module", Align::Left),
    ];
    let mut table = Table::new(&[columns.as_slice(), &others].concat())
        .give_way(&["total", "p50", "p99", "a call", "module", "p"]);
    for row in rows {
        table.row(cells(row));
    }
    table.write(out, width)?;
    if comparison.left_out > 0 {
        writeln!(out, "({} more)", count(comparison.left_out as u64))?;
    }
    let sides = rows
        .iter()
        .flat_map(|row| [&row.before, &row.after])
        .flatten();
    if sides.clone().any(|side| side.self_is_least) {
        writeln!(
            out,
            "≥ may be more: the begin or end of some calls is not known; p50 and p99 are of the others"
        )?;
    }
    if sides.clone().any(|side| side.calls_are_least) {
        writeln!(out, "{CALLS_OFF}")?;
    }
    if sides.clone().any(|side| side.self_with_untimed) {
        writeln!(out, "{WITH_UNTIMED}")?;
    }
    if has_times {
        writeln!(out, "{}", meaning(comparison, before.len(), after.len()))?;
    }
    Ok(())
}

/// `1 trace with 3`, `1 trace with 1, per call of handle`.
fn kind(before: &[Run], after: &[Run], per: Option<&str>) -> String {
    let traces = |side: &[Run]| several(side.len() as u64, "trace", "traces");
    let mean = match before.len().max(after.len()) {
        1 => "",
        _ => ", means",
    };
    let per = per.map_or(String::new(), |per| {
        let calls = |side: &[Run]| side.iter().map(|run| run.times).sum::<u64>() as f64;
        let calls = pair(number(calls(before)), number(calls(after)));
        format!(" per call of {per} ({calls})")
    });
    format!("{}{ARROW}{}{mean}{per}", traces(before), traces(after))
}

/// The options in which the recordings differ: calls that only one of them records count as time of their callers in
/// the other.
fn unlike(before: &[Run], after: &[Run]) -> Vec<String> {
    let options = |run: &Run| match run.options.as_slice() {
        [] => "no options".to_owned(),
        some => some.join(" "),
    };
    let mut known: Vec<(String, Vec<&str>)> = Vec::new();
    for run in before.iter().chain(after) {
        let options = options(run);
        match known.iter_mut().find(|(other, _)| *other == options) {
            Some((_, traces)) => traces.push(&run.trace),
            None => known.push((options, vec![&run.trace])),
        }
    }
    if known.len() < 2 {
        return Vec::new();
    }
    let traces = known
        .iter()
        .map(|(options, traces)| format!("{} with {options}", traces.join(", ")));
    let traces: Vec<String> = traces.collect();
    vec![format!(
        "recorded differently, which changes self times: {}",
        traces.join("; ")
    )]
}

fn cells(row: &Row) -> Vec<String> {
    let (a, b) = (row.before.as_ref(), row.after.as_ref());
    let has_times = row.has_times();
    let of = |value: fn(&Means) -> Option<f64>, is_least: fn(&Means) -> bool| match has_times {
        true => {
            let sign = |side: Option<&Means>| side.is_some_and(is_least);
            bounded(a.and_then(value), b.and_then(value), sign(a), sign(b))
        }
        false => NONE.to_owned(),
    };
    let exact = |_: &Means| false;
    let own = match has_times {
        true => {
            let [a, b] = [a, b].map(|side| {
                let is_least = side.is_some_and(|side| side.self_is_least);
                let is_with_untimed = side.is_some_and(|side| side.self_with_untimed);
                let own = shown(side.map(|side| side.self_ns), is_least);
                with_untimed(own, is_with_untimed)
            });
            both(a, b)
        }
        false => NONE.to_owned(),
    };
    let significant = if row.significant { "*" } else { "" };
    vec![
        match has_times {
            true => signed(row.change_ns),
            false => NONE.to_owned(),
        },
        own,
        of(Means::per_call, |side| side.self_is_least),
        pair(calls(a), calls(b)),
        of(|side| Some(side.total_ns), |side| side.total_is_least),
        of(|side| side.p50_ns, exact),
        of(|side| side.p99_ns, exact),
        match row.p {
            None => NONE.to_owned(),
            Some(p) if p < 0.001 => format!("<0.001{significant}"),
            Some(p) => format!("{p:.3}{significant}"),
        },
        row.function.clone(),
        row.module.clone(),
    ]
}

fn meaning(comparison: &Comparison, before: usize, after: usize) -> String {
    let what = several(
        comparison.significant as u64,
        "function differs significantly",
        "functions differ significantly",
    );
    let tests = several(comparison.tested as u64, "test", "tests");
    let how = match comparison.test {
        Test::Calls => format!(
            "durations of calls differ by more than {:.0} %: Mann-Whitney\nonly several traces a side tell changes from differences between runs of one program",
            (MARGIN - 1.0) * 100.0
        ),
        Test::Runs => {
            format!("{before} and {after} runs differ in calls times typical duration: Student")
        }
    };
    let least = TESTED * 100.0;
    format!(
        "* {what}: p < {SIGNIFICANT} by Holm for {tests}; -: no calls to compare, or below {least} % of all self time\np: {how}"
    )
}

fn pair(a: String, b: String) -> String {
    format!("{a}{ARROW}{b}")
}

fn times(a: Option<f64>, b: Option<f64>) -> String {
    bounded(a, b, false, false)
}

/// Two durations, of which either may be the least possible one; a unit that both have is shown once.
fn bounded(a: Option<f64>, b: Option<f64>, a_is_least: bool, b_is_least: bool) -> String {
    both(shown(a, a_is_least), shown(b, b_is_least))
}

fn shown(value: Option<f64>, is_least: bool) -> String {
    match value {
        None => NONE.to_owned(),
        Some(ns) => format!("{}{}", if is_least { "≥ " } else { "" }, time(ns)),
    }
}

/// Two times, whose unit is shown once if both have it.
fn both(a: String, b: String) -> String {
    let unit = |text: &str| text.rsplit_once(' ').map(|(_, unit)| unit.to_owned());
    match (unit(&a), unit(&b)) {
        (Some(one), Some(other)) if one == other => {
            pair(a[..a.len() - one.len() - 1].to_owned(), b)
        }
        _ => pair(a, b),
    }
}

/// The time of a call on average, which may have parts of a nanosecond.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 9.95 && ns > 0.0 => format!("{ns:.1} ns"),
        ns => duration(ns.round() as u64),
    }
}

fn signed(ns: f64) -> String {
    match ns {
        0.0 => time(0.0),
        ns if ns < 0.0 => format!("-{}", time(-ns)),
        ns => format!("+{}", time(ns)),
    }
}

fn calls(side: Option<&Means>) -> String {
    side.map_or(NONE.to_owned(), |side| {
        let sign = if side.calls_are_least { "≥ " } else { "" };
        format!("{sign}{}", number(side.calls))
    })
}

/// A mean number of calls.
fn number(value: f64) -> String {
    match value {
        value if value.fract() == 0.0 || value >= 999.5 => count(value.round() as u64),
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn percent(a: f64, b: f64) -> String {
    match a > 0.0 {
        true => format!(" ({:+.1} %)", (b - a) * 100.0 / a),
        false => String::new(),
    }
}

#[derive(Serialize)]
struct TraceJson<'a> {
    trace: &'a str,
    options: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    losses: Option<serde_json::Value>,
}

impl TraceJson<'_> {
    fn of(run: &Run) -> TraceJson<'_> {
        let losses = run.losses.as_ref();
        TraceJson {
            trace: &run.trace,
            options: &run.options,
            losses: losses.and_then(|(_, json)| serde_json::from_str(json).ok()),
        }
    }
}

#[derive(Serialize)]
struct Json<'a> {
    before: Vec<TraceJson<'a>>,
    after: Vec<TraceJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per: Option<&'a str>,
    test: Test,
    tested: usize,
    significant: usize,
    functions: &'a [Row],
}

/// Writes one object.
pub fn write_json(
    comparison: &Comparison,
    [before, after]: [&[Run]; 2],
    per: Option<&str>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let json = Json {
        before: before.iter().map(TraceJson::of).collect(),
        after: after.iter().map(TraceJson::of).collect(),
        per,
        test: comparison.test,
        tested: comparison.tested,
        significant: comparison.significant,
        functions: &comparison.rows,
    };
    serde_json::to_writer_pretty(&mut *out, &json)?;
    writeln!(out)
}
