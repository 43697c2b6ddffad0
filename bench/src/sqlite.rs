//! SQLite, every function on, beside uftrace.

use crate::programs::{Programs, is_installed};
use crate::run::{Paths, Ran, run};
use crate::samples::{Samples, in_turn};
use crate::table::{Bound, Row};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUNDS: usize = 3;
const ROWS: &str = "120000";

pub struct Binaries {
    pub plain: PathBuf,
    /// The program with calls of mcount, for uftrace.
    pub mcount: Option<PathBuf>,
}

pub fn compile(programs: &Programs) -> Result<Binaries> {
    std::thread::scope(|scope| {
        let mcount = is_installed("uftrace")
            .then(|| scope.spawn(|| programs.sqlite("gcc", "sqlite-pg", &["-pg"])));
        let plain = programs.sqlite("gcc", "sqlite", &[])?;
        let mcount = mcount.and_then(|thread| thread.join().ok()).transpose()?;
        Ok(Binaries { plain, mcount })
    })
}

struct Sample {
    inside: f64,
    lost: u64,
}

pub fn measure(paths: &Paths, binaries: &Binaries) -> Result<Vec<Row>> {
    let plain = &binaries.plain;
    let sample = |ran: Ran, lost| {
        Ok(Sample {
            inside: ran.printed.get("time")? / 1e6,
            lost,
        })
    };
    let record = |options: &[&str]| {
        let ran = paths.record(options, plain, &[ROWS])?;
        sample(ran, paths.lost()?)
    };
    let mut untraced = || sample(run(Command::new(plain).arg(ROWS))?, 0);
    let mut blocking = || record(&["--block"]);
    let mut dropping = || record(&[]);
    let mut runs: Vec<&mut dyn FnMut() -> Result<Sample>> =
        vec![&mut untraced, &mut blocking, &mut dropping];

    let uftrace =
        |options: &[&str], program: &Path| sample(paths.uftrace(options, program, &[ROWS])?, 0);
    let mcount = binaries.mcount.as_deref().unwrap_or(plain);
    let mut uftrace_mcount = || uftrace(&[], mcount);
    let mut uftrace_same = || uftrace(&["-P", "."], plain);
    if binaries.mcount.is_some() {
        runs.extend([
            &mut uftrace_mcount as &mut dyn FnMut() -> Result<Sample>,
            &mut uftrace_same,
        ]);
    }
    let results = in_turn(ROUNDS, &mut runs)?;
    let times: Vec<Samples> = results
        .iter()
        .map(|rounds| rounds.iter().map(|round| round.inside).collect())
        .collect();
    let lost: Vec<Samples> = results
        .iter()
        .map(|rounds| rounds.iter().map(|round| round.lost as f64).collect())
        .collect();

    let base = &times[0];
    let added = |index: usize| times[index].less(base);
    let row = |index: usize, what: &str| {
        let note = format!(
            "{:.0} ms, untraced {:.0} ms",
            times[index].median(),
            base.median()
        );
        Row::new(what, "× untraced", times[index].over(base)).note(note)
    };
    let mut rows = vec![
        row(1, "SQLite, every function on, --block").bound(Bound::AtMost(5.0)),
        Row::new("events lost then", "", lost[1].clone()).bound(Bound::Exactly(0.0)),
        row(2, "SQLite, every function on").bound(Bound::AtMost(5.0)),
        Row::new("events lost then", "", lost[2].clone()),
    ];
    if binaries.mcount.is_some() {
        let ratio = |peer: usize, what: &str| {
            let note = format!(
                "{:.0} ms against {:.0} ms",
                added(peer).median(),
                added(1).median()
            );
            Row::new(what, "×", added(peer).over(&added(1)))
                .bound(Bound::AtLeast(3.0))
                .note(note)
        };
        rows.extend([
            ratio(3, "time that uftrace adds (-pg), over nopal's (--block)"),
            ratio(
                4,
                "time that uftrace adds (-P ., same binary), over nopal's",
            ),
            row(3, "peer: uftrace record, SQLite compiled with -pg"),
            row(4, "peer: uftrace record -P ., the same binary"),
        ]);
    }
    Ok(rows)
}
