//! Self times that are estimated within a budget, against those of a recording of all calls, both net.

use super::{Function, OPTIONS, ROWS, Reported, TURNS, rows};
use crate::run::{Paths, remove};
use crate::samples::{Samples, in_turn};
use crate::table::{Bound, Row};
use anyhow::{Result, ensure};
use std::collections::HashMap;
use std::path::Path;

/// Of a recording of all calls: a round is some 8 million events.
const ROUNDS: &str = "30";
const FUNCTIONS: usize = 10;
/// Calls with a longer self time, in nanoseconds, take several times as long as their recording does.
const LONG: f64 = 100.0;

/// A function's mean self time in a call, in nanoseconds, and by how many percent the estimate of it differs.
struct Estimated {
    own: f64,
    difference: f64,
}

pub fn measure(paths: &Paths, program: &Path, rounds: u64) -> Result<Vec<Row>> {
    let rounds = rounds.to_string();
    let cache = paths.directory.join("cold-cache");
    let mut all = || {
        paths.record(&["--block"], program, &[ROWS, ROUNDS])?;
        ensure!(paths.lost()? == 0, "events were lost");
        rows(paths, &["--net"])
    };
    let mut within = || {
        remove(&cache)?;
        paths.record_cached(&OPTIONS, program, &[ROWS, &rounds], &cache)?;
        rows(paths, &["--net"])
    };
    let results = in_turn(TURNS, &mut [&mut all, &mut within])?;
    let runs = results[0].iter().zip(&results[1]);
    let runs: Vec<Vec<Estimated>> = runs.map(|(all, within)| hottest(all, within)).collect();

    let differences = |least: f64| -> Samples {
        let long = |run: &Vec<Estimated>| {
            let long = run.iter().filter(|function| function.own >= least);
            Samples::from_iter(long.map(|function| function.difference.abs()))
        };
        let runs = runs.iter().map(long);
        runs.filter(|run| !run.values().is_empty())
            .map(|run| run.median())
            .collect()
    };
    let own: Samples = runs.iter().flatten().map(|function| function.own).collect();
    let calls = format!(
        "their calls take {:.0} to {:.0} ns, in the median {:.0}",
        own.lowest(),
        own.highest(),
        own.median()
    );
    Ok(vec![
        Row::new(
            "estimated self times of the ten hottest functions without untimed callees, net: difference from a full recording",
            "%",
            differences(0.0),
        )
        .bound(Bound::AtMost(10.0))
        .note(calls),
        Row::new("of those among them that take 100 ns and more", "%", differences(LONG)),
    ])
}

/// The hottest functions whose calls were counted for a time, and never off, and whose callees were all timed.
fn hottest(all: &[Reported], within: &[Reported]) -> Vec<Estimated> {
    let all: HashMap<&Function, &Reported> = all.iter().map(|row| (&row.function, row)).collect();
    let mut functions: Vec<_> = within
        .iter()
        .filter(|row| row.is_estimated)
        .filter_map(|row| Some((*all.get(&row.function)?, row)))
        .collect();
    functions.sort_by(|(one, _), (other, _)| {
        let own = [other, one].map(|row| row.own_of_each() * row.calls as f64);
        own[0].total_cmp(&own[1])
    });
    let compared = functions.iter().take(FUNCTIONS).map(|(all, within)| {
        let own = all.own_of_each();
        Estimated {
            own,
            difference: 100.0 * (within.own_of_each() / own - 1.0),
        }
    });
    compared.collect()
}
