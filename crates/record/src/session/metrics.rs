//! The metrics of a session.

use crate::session::Session;
use nopal_analysis::sort;
use nopal_control::{Kind, Metric, Value};
use nopal_trace::losses::AFTER_END;
use std::collections::BTreeMap;

/// Functions that are told of: a scraper keeps each for long.
const FUNCTIONS: usize = 1000;

/// A few milliseconds, with tens of thousands of functions. The calls of functions that are recorded count from the
/// first time on; the flight recorder does not count them.
pub fn of(session: &Session) -> Vec<Metric> {
    let shared = &session.context.shared;
    let lost = shared.counts().lost;
    let counted = shared.counted();
    let mut writer = shared.writer.lock();
    let bytes = writer.bytes();
    let functions = writer.called_functions(&counted);
    drop(writer);
    let (is_full, after_end) = shared.after_end();
    let mut reasons = lost.reasons();
    reasons.insert(AFTER_END.into(), after_end);
    let lost = reasons.into_iter();
    let lost = lost.map(|(reason, events)| (vec![("reason", reason)], events as f64));
    let (snapshots, not_taken) = shared.snapshots().numbers();
    let (functions, left_out) = most_called(functions);
    vec![
        Metric::plain(
            "nopal_processes",
            Kind::Gauge,
            "Traced processes.",
            session.processes.tracees.len() as f64,
        ),
        Metric::plain(
            "nopal_trace_bytes",
            Kind::Gauge,
            "Size of the trace, without snapshots.",
            bytes as f64,
        ),
        Metric::plain(
            "nopal_snapshots_total",
            Kind::Counter,
            "Snapshots of the flight recorder that are written.",
            snapshots as f64,
        ),
        Metric::plain(
            "nopal_snapshots_not_taken_total",
            Kind::Counter,
            "Snapshots that were asked for and could not be written.",
            not_taken as f64,
        ),
        Metric::plain(
            "nopal_trace_full",
            Kind::Gauge,
            "Whether nothing more is recorded, as the disk or the trace's limit is full.",
            f64::from(u8::from(is_full)),
        ),
        Metric {
            name: "nopal_lost_events_total",
            kind: Kind::Counter,
            about: "Events that were not recorded.",
            values: lost.collect(),
        },
        Metric {
            name: "nopal_function_calls_total",
            kind: Kind::Counter,
            about: "Calls of a function that were recorded or counted.",
            values: functions,
        },
        Metric::plain(
            "nopal_functions_left_out",
            Kind::Gauge,
            "Functions that were called and are not among those of nopal_function_calls_total.",
            left_out as f64,
        ),
    ]
}

/// The functions with most calls, by module and name, and how many others there are.
fn most_called(functions: Vec<(String, String, u64)>) -> (Vec<Value>, usize) {
    // Several processes have the same functions, and a file may have several of one name.
    let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (module, function, calls) in functions {
        let sum: &mut u64 = sums.entry((module, function)).or_default();
        *sum = sum.saturating_add(calls);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sort::by_key(&mut sums, |(_, calls)| std::cmp::Reverse(*calls));
    let left_out = sums.len().saturating_sub(FUNCTIONS);
    sums.truncate(FUNCTIONS);
    sort::by(&mut sums, Ord::cmp);
    let values = sums.into_iter().map(|((module, function), calls)| {
        let labels = vec![("module", module), ("function", function)];
        (labels, calls as f64)
    });
    (values.collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_with_few_calls_are_left_out_and_those_of_one_name_are_one() {
        let of = |number: usize| ("m".to_owned(), format!("f{number:04}"), number as u64);
        let functions: Vec<_> = (1..=FUNCTIONS + 2).chain([5]).map(of).collect();
        let (shown, left_out) = most_called(functions);
        assert_eq!((shown.len(), left_out), (FUNCTIONS, 2));
        let labels = vec![("module", "m".to_owned()), ("function", "f0005".to_owned())];
        assert!(shown.contains(&(labels, 10.0)));
        assert!(shown.iter().all(|(_, calls)| *calls > 2.0));
    }
}
