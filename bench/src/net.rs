//! The error of net times, which are times less the cost of recording.

use crate::programs::Programs;
use crate::run::Paths;
use crate::samples::Samples;
use crate::table::{Bound, Row};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;

const ROUNDS: usize = 7;
const DURATIONS: [&str; 4] = ["50ns", "200ns", "1us", "10us"];

/// The largest permitted error, either way.
const MOST_PERCENT: f64 = 10.0;

pub fn measure(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
    let program = programs.compile("gcc", "net", "net", &[])?;
    let mut errors = [const { Vec::new() }; DURATIONS.len()];
    for _ in 0..ROUNDS {
        let recorded = ["-F", "spin_*", "-F", "middle_*", "-F", "outer_*"];
        let truth = paths.record(&recorded, &program, &[])?.printed;
        let report = net(paths)?;
        for (duration, errors) in DURATIONS.iter().zip(&mut errors) {
            let function = format!("outer_{duration}");
            let row = report.iter().find(|row| row["function"] == *function);
            let median = row.and_then(|row| row["p50_ns"].as_f64());
            let truth = truth.get(duration)?;
            let error = median.context("it is not in the trace")? / truth - 1.0;
            errors.push(100.0 * error.abs());
        }
    }
    let rows = DURATIONS.iter().zip(errors).map(|(duration, errors)| {
        let what = format!("net time of 100 functions of {duration}, two callers deep: off by");
        Row::new(what, "%", Samples::from_iter(errors)).bound(Bound::AtMost(MOST_PERCENT))
    });
    Ok(rows.collect())
}

/// The rows of `nopal report --net` of the last recording.
fn net(paths: &Paths) -> Result<Vec<Value>> {
    let output = Command::new(&paths.nopal)
        .args(["report", "--net", "--json"])
        .arg(paths.trace())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nopal report: {said}");
    Ok(serde_json::from_slice(&output.stdout)?)
}
