//! A scheduler's benchmark by itself, with nopal in it and all tracers off, with each on, and with functions on. `NOPAL_HACKBENCH` is how often each is run (10).

use crate::run::{Places, run};
use crate::samples::Samples;
use crate::table::{Bound, Row};
use anyhow::{Context, Result};
use nopal_trace::Trace;
use std::process::Command;

/// As many messages as take about a second on two cores.
const ARGUMENTS: [&str; 6] = ["-g", "10", "-l", "1000", "-s", "100"];
const PROGRAM: &str = "hackbench";

/// How a run is traced: what it is called, the options of `nopal record`, and what is asked of the added time.
const KINDS: [(&str, &[&str], Option<f64>); 5] = [
    ("tracers off", &["-M", "none@none"], Some(0.5)),
    (
        "sched_switch",
        &["-M", "none@none", "-e", "sched_switch"],
        None,
    ),
    ("wakeup", &["-M", "none@none", "-e", "sched"], Some(5.0)),
    ("functions", &[], None),
    ("functions and sched", &["-e", "sched"], None),
];

/// What hackbench calls its time, in seconds.
const TIME: &str = "Time:";

/// What the first tracer of all functions of a kernel added, in percent.
const OF_KERNEL: f64 = 49.74;

pub fn measure(places: &Places) -> Result<Vec<Row>> {
    let rounds: usize = match std::env::var("NOPAL_HACKBENCH") {
        Ok(text) => text.parse().context("NOPAL_HACKBENCH is no number")?,
        Err(_) => 10,
    };
    let mut plain = Vec::new();
    let mut traced: [Vec<f64>; KINDS.len()] = Default::default();
    let mut lost = [0; KINDS.len()];
    let mut added: [Vec<f64>; KINDS.len()] = Default::default();
    // In turn, so that what else the machine does meets all of them.
    for _ in 0..rounds {
        let alone = run(Command::new(PROGRAM).args(ARGUMENTS))?
            .printed
            .get(TIME)?;
        plain.push(alone);
        for (at, (_, options, _)) in KINDS.into_iter().enumerate() {
            let program = std::path::Path::new(PROGRAM);
            let time = places
                .record(options, program, &ARGUMENTS)?
                .printed
                .get(TIME)?;
            traced[at].push(time);
            added[at].push((time / alone - 1.0) * 100.0);
            let trace = Trace::open(&places.trace())?;
            lost[at] += trace.lost() + trace.processors().map(|one| one.lost()).sum::<u64>();
        }
    }
    let mut rows = vec![Row::new(
        "hackbench by itself",
        "s",
        Samples::from_iter(plain),
    )];
    for (at, (name, _, bound)) in KINDS.into_iter().enumerate() {
        let time = Samples::from_iter(traced[at].clone());
        rows.push(Row::new(format!("hackbench, {name}"), "s", time));
        let mut row = Row::new(
            format!("hackbench, {name}: added"),
            "%",
            Samples::from_iter(added[at].clone()),
        )
        .note(format!("{} events lost", lost[at]));
        if let Some(bound) = bound {
            row = row.bound(Bound::AtMost(bound));
        }
        if name == "functions" {
            row = row.bound(Bound::AtMost(OF_KERNEL / 10.0));
        }
        rows.push(row);
    }
    Ok(rows)
}
