//! Eight threads that do nothing but call: is anything lost?

use crate::programs::Programs;
use crate::run::{Paths, run};
use crate::samples::{Samples, in_turn};
use crate::table::{Bound, Row};
use anyhow::Result;
use std::process::Command;

const ROUNDS: usize = 3;
const ARGUMENTS: [&str; 2] = ["8", "1000000"];
const CALLS: f64 = 8e6;

struct Sample {
    nanoseconds: f64,
    lost: f64,
    calls: f64,
}

pub fn measure(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
    let program = programs.compile("gcc", "threads", "threads", &[])?;
    let sample = |options: &[&str]| {
        let ran = paths.record(&[options, &["-F", "work"]].concat(), &program, &ARGUMENTS)?;
        let calls = paths.calls()?.get("work").copied().unwrap_or(0);
        Ok(Sample {
            nanoseconds: ran.printed.get("time")?,
            lost: paths.lost()? as f64,
            calls: calls as f64,
        })
    };
    let results = in_turn(
        ROUNDS,
        &mut [
            &mut || {
                let ran = run(Command::new(&program).args(ARGUMENTS))?;
                Ok(Sample {
                    nanoseconds: ran.printed.get("time")?,
                    lost: 0.0,
                    calls: CALLS,
                })
            },
            &mut || sample(&["--block"]),
            &mut || sample(&[]),
        ],
    )?;
    let of = |index: usize, what: fn(&Sample) -> f64| -> Samples {
        results[index].iter().map(what).collect()
    };
    let note = |index: usize| {
        format!(
            "{:.1} ns a call over all threads",
            of(index, |sample| sample.nanoseconds / CALLS).median()
        )
    };
    Ok(vec![
        Row::new(
            "8 threads at full speed, --block: events lost",
            "",
            of(1, |sample| sample.lost),
        )
        .bound(Bound::Exactly(0.0))
        .note(note(1)),
        Row::new(
            "their calls counted, of 8,000,000",
            "",
            of(1, |sample| sample.calls),
        )
        .bound(Bound::Exactly(CALLS)),
        Row::new(
            "8 threads at full speed: events lost, of 16,000,000",
            "",
            of(2, |sample| sample.lost),
        )
        .note(note(2)),
    ])
}
