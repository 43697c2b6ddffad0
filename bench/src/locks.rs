//! The cost of the tracer lockhold for a program that locks and unlocks a mutex, and of adding a case to a histogram.

use crate::programs::Programs;
use crate::run::{Paths, remove, run};
use crate::samples::{Samples, in_turn};
use crate::table::{Bound, Row};
use anyhow::Result;
use std::process::Command;

const ROUNDS: usize = 5;
/// The records of so many pairs fit into the buffer.
const ARGUMENTS: [&str; 2] = ["50", "2000"];

struct Sample {
    pair: f64,
    clock: f64,
}

pub fn measure(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
    let program = programs.compile("gcc", "locks", "locks", &[])?;
    let sample = |command: &mut Command| {
        let ran = run(command)?;
        Ok(Sample {
            pair: ran.printed.get("pair")?,
            clock: ran.printed.get("clock")?,
        })
    };
    let results = in_turn(
        ROUNDS,
        &mut [
            &mut || sample(Command::new(&program).args(ARGUMENTS)),
            &mut || {
                remove(&paths.trace())?;
                let mut traced = Command::new(&paths.nopal);
                traced.args(["run", "-p", "-o"]).arg(paths.trace());
                sample(traced.arg(&program).args(ARGUMENTS))
            },
        ],
    )?;
    let of = |index: usize, what: fn(&Sample) -> f64| -> Samples {
        results[index].iter().map(what).collect()
    };
    let added = of(1, |sample| sample.pair).less(&of(0, |sample| sample.pair));
    let clock = of(0, |sample| sample.clock);
    let note = format!(
        "{:.0} ticks on top of {:.0}",
        added.median(),
        of(0, |sample| sample.pair).median()
    );
    Ok(vec![
        Row::new(
            "lockhold, added to a lock and unlock pair / 2 rdtsc",
            "x",
            added.over(&clock),
        )
        .bound(Bound::AtMost(2.4))
        .note(note),
        Row::new("histogram update", "ns", updates(programs)?).bound(Bound::AtMost(5.0)),
    ])
}

fn updates(programs: &Programs) -> Result<Samples> {
    let runtime = concat!(env!("CARGO_MANIFEST_DIR"), "/../runtime");
    let include = ["core", "arch/x86_64"].map(|folder| format!("-I{runtime}/{folder}"));
    let options = include.each_ref().map(String::as_str);
    let program = programs.compile("gcc", "histogram", "histogram", &options)?;
    let rounds = (0..ROUNDS).map(|_| {
        let ran = run(Command::new(&program).args(["50", "100000"]))?;
        ran.printed.get("update")
    });
    rounds.collect()
}
