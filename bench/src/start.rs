//! The time that tracing adds to a program that does nothing.

use crate::run::{Paths, remove, run};
use crate::samples::{Samples, in_turn};
use crate::table::{Bound, Row};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const ROUNDS: usize = 11;
const PYTHON: &str = "/usr/bin/python3";
const NOTHING: [&str; 2] = ["-c", "pass"];

pub fn measure(paths: &Paths) -> Result<Vec<Row>> {
    let python = Path::new(PYTHON);
    if !python.exists() {
        return Ok(Vec::new());
    }
    let warm = paths.directory.join("cache");
    let cold = paths.directory.join("cold-cache");
    paths.record_cached(&[], python, &NOTHING, &warm)?;

    let milliseconds = |ran: crate::run::Ran| ran.time.as_secs_f64() * 1e3;
    let mut untraced = || run(Command::new(python).args(NOTHING)).map(milliseconds);
    let mut cached = || {
        paths
            .record_cached(&[], python, &NOTHING, &warm)
            .map(milliseconds)
    };
    let mut uncached = || {
        remove(&cold)?;
        paths
            .record_cached(&[], python, &NOTHING, &cold)
            .map(milliseconds)
    };
    let times: Vec<Samples> = in_turn(ROUNDS, &mut [&mut untraced, &mut cached, &mut uncached])?
        .into_iter()
        .map(Samples::from_iter)
        .collect();
    let row = |index: usize, what: &str, limit: f64| {
        let note = format!(
            "{:.0} ms, untraced {:.0} ms",
            times[index].median(),
            times[0].median()
        );
        Row::new(what, "ms", times[index].less(&times[0]))
            .bound(Bound::AtMost(limit))
            .note(note)
    };
    Ok(vec![
        row(1, "added to `python3 -c pass`, plans cached", 30.0),
        row(2, "added to `python3 -c pass`, plans not cached", 150.0),
    ])
}
