//! SQLite within a budget of 5 %, every function on: the cost, launched cold and with the last run's profile, and after
//! a step in load; the part of the calls that the trace knows, and the times that it estimates; and the same of other
//! tracers that leave something out.

mod estimates;
mod peers;
mod step;

use crate::programs::Programs;
use crate::run::{Paths, Ran, output, remove, run};
use crate::samples::{Samples, in_turn};
use crate::table::{Bound, Row};
use anyhow::{Context, Result, ensure};
use nopal_trace::{Note, SiteState, SiteStates, Trace};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const TURNS: usize = 5;
const ROWS: &str = "12000";
/// The length of a run, in untraced processor time.
const SECONDS: f64 = 10.0;
/// The rounds of a first run, which shows how many rounds take `SECONDS`.
const FEW_ROUNDS: u64 = 30;
const OPTIONS: [&str; 3] = ["--block", "--budget", "5%"];

/// A run of some rounds. Times are in seconds.
struct Sample {
    /// The program's processor time in the whole run.
    processor: f64,
    /// The program's processor time in a round after the first second.
    processor_then: f64,
    /// The processor time of program and tool in the whole run.
    with_tool: f64,
    /// The wall time of a round after the first second.
    time_then: f64,
    known: Option<Known>,
}

/// The facts that the trace of a run has.
struct Known {
    called: f64,
    /// The functions that were timed at the end of the run.
    timed: f64,
    /// Of the functions that were never off, the share with all calls in the trace.
    exact: f64,
    changes: f64,
    lost: f64,
}

pub fn measure(paths: &Paths, programs: &Programs, program: &Path) -> Result<Vec<Row>> {
    let untraced = |rounds: u64| {
        let ran = run(Command::new(program).args([ROWS, &rounds.to_string()]))?;
        sample(&ran, None)
    };
    let few = untraced(FEW_ROUNDS)?;
    let rounds = (SECONDS / few.processor * FEW_ROUNDS as f64) as u64;
    let made = Made::of(paths, program)?;
    let cold = paths.directory.join("cold-cache");
    let warm = paths.directory.join("budget-cache");
    let within = |cache: &PathBuf| {
        let ran = paths.record_cached(&OPTIONS, program, &[ROWS, &rounds.to_string()], cache)?;
        sample(&ran, Some(known(paths, &made, rounds)?))
    };
    within(&warm)?;
    let mut plain = || untraced(rounds);
    let mut from_cold = || {
        remove(&cold)?;
        within(&cold)
    };
    let mut as_before = || within(&warm);
    let results = in_turn(TURNS, &mut [&mut plain, &mut from_cold, &mut as_before])?;

    let of = |run: usize, what: &dyn Fn(&Sample) -> f64| -> Samples {
        results[run].iter().map(what).collect()
    };
    let added = |run: usize, what: &dyn Fn(&Sample) -> f64| {
        let percent = |with: f64, without: f64| (with / without - 1.0) * 100.0;
        of(run, what).with(&of(0, what), percent)
    };
    let knows = |run: usize, what: &dyn Fn(&Known) -> f64| -> Samples {
        let known = results[run].iter().filter_map(|one| one.known.as_ref());
        known.map(what).collect()
    };
    let (cold, warm) = (1, 2);
    let whole = format!(
        "{rounds} rounds, untraced {:.1} s",
        of(0, &|one| one.processor).median()
    );
    let called = format!(
        "of {:.0} called",
        knows(cold, &|known| known.called).median()
    );
    let timed = |run: usize| knows(run, &|known| 100.0 * known.timed / known.called);
    let mut rows = vec![
        Row::new(
            "SQLite, --budget 5%, after the first second: added processor time",
            "%",
            added(cold, &|one| one.processor_then),
        )
        .bound(Bound::AtMost(5.0)),
        Row::new(
            "added wall time then",
            "%",
            added(cold, &|one| one.time_then),
        )
        .bound(Bound::AtMost(6.0)),
        Row::new(
            "the whole run, launched cold: added processor time",
            "%",
            added(cold, &|one| one.processor),
        )
        .bound(Bound::AtMost(8.0))
        .note(whole),
        Row::new(
            "the same, with the last run's profile",
            "%",
            added(warm, &|one| one.processor),
        )
        .bound(Bound::AtMost(5.5)),
        Row::new(
            "the whole run, launched cold, with nopal's own processes: added processor time",
            "%",
            added(cold, &|one| one.with_tool),
        ),
        Row::new("functions still timed at its end", "%", timed(cold))
            .bound(Bound::AtLeast(85.0))
            .note(called),
        Row::new("the same, with the last run's profile", "%", timed(warm)),
        Row::new(
            "functions that were never off: all calls counted",
            "%",
            knows(cold, &|known| known.exact),
        )
        .bound(Bound::Exactly(100.0)),
        Row::new("changes of state", "", knows(cold, &|known| known.changes)),
        Row::new("events lost", "", knows(cold, &|known| known.lost)),
    ];
    rows.extend(estimates::measure(paths, program, rounds)?);
    rows.push(step::measure(paths, program)?);
    rows.extend(peers::measure(paths, programs, program)?);
    Ok(rows)
}

fn sample(ran: &Ran, known: Option<Known>) -> Result<Sample> {
    let seconds = |name: &str| Ok::<f64, anyhow::Error>(ran.printed.get(name)? / 1e9);
    Ok(Sample {
        processor: seconds("processor")?,
        processor_then: seconds("processor_then")?,
        with_tool: ran.processors.as_secs_f64(),
        time_then: seconds("time_then")?,
        known,
    })
}

/// A function, by its name and its file's.
type Function = (String, String);

/// The calls that the program makes in the first round, and in each further one. Functions with other numbers of calls
/// in other rounds are left out, and those of libraries: how often malloc asks for memory, and printf divides, depends on
/// the size of the heap and on the times that are printed.
struct Made(HashMap<Function, [u64; 2]>);

impl Made {
    fn of(paths: &Paths, program: &Path) -> Result<Made> {
        let mut recorded = Vec::new();
        for rounds in ["1", "2", "3"] {
            paths.record(&["--block"], program, &[ROWS, rounds])?;
            ensure!(paths.lost()? == 0, "events were lost");
            let calls = rows(paths, &[])?
                .into_iter()
                .filter(|row| program.ends_with(&row.function.1))
                .map(|row| (row.function, row.calls));
            recorded.push(calls.collect::<HashMap<_, _>>());
        }
        let made = recorded[0].iter().filter_map(|(function, first)| {
            let [second, third] = [1, 2].map(|at| recorded[at].get(function).copied());
            let each = second?.checked_sub(*first)?;
            (third? == second? + each).then(|| (function.clone(), [*first, each]))
        });
        Ok(Made(made.collect()))
    }

    fn by(&self, function: &Function, rounds: u64) -> Option<u64> {
        let [first, each] = self.0.get(function)?;
        Some(first + each * (rounds - 1))
    }
}

fn known(paths: &Paths, made: &Made, rounds: u64) -> Result<Known> {
    let trace = Trace::open(&paths.trace())?;
    let mut untimed = HashMap::new();
    for note in trace.notes() {
        if let Note::State { state, sites, .. } = note {
            untimed.extend(sites.iter().map(|site| (*site, *state)));
        }
    }
    untimed.retain(|_, state| *state != SiteState::Timed);
    let rows = rows(paths, &[])?;
    let called = rows.len() as f64;
    let exact: Vec<bool> = rows
        .iter()
        .filter(|row| !row.was_off)
        .filter_map(|row| Some(made.by(&row.function, rounds)? == row.calls))
        .collect();
    let all = exact.iter().filter(|is_exact| **is_exact).count() as f64;
    Ok(Known {
        called,
        timed: called - untimed.len() as f64,
        exact: 100.0 * all / exact.len() as f64,
        changes: SiteStates::of(&trace).changes as f64,
        lost: trace.lost() as f64,
    })
}

/// The row of a function in `nopal report`.
struct Reported {
    function: Function,
    calls: u64,
    was_off: bool,
    own_ns: f64,
    /// The self time has an estimate in it, and nothing of callees that were not timed.
    is_estimated: bool,
}

impl Reported {
    fn own_of_each(&self) -> f64 {
        self.own_ns / self.calls as f64
    }
}

fn rows(paths: &Paths, options: &[&str]) -> Result<Vec<Reported>> {
    let mut command = Command::new(&paths.nopal);
    command.args(["report", "--json"]).args(options);
    let text = output(command.arg(paths.trace()))?;
    let rows: Vec<Value> = serde_json::from_str(&text)?;
    let reported = rows.iter().map(|row| {
        let text = |field: &str| Some(row[field].as_str()?.to_owned());
        let estimated = row["estimated_self_ns"].as_f64();
        let was_off = row.get("off_ns").is_some();
        Some(Reported {
            function: (text("function")?, text("module")?),
            calls: row["calls"].as_u64()?,
            was_off,
            own_ns: estimated.or_else(|| row["self_ns"].as_f64())?,
            is_estimated: estimated.is_some()
                && !was_off
                && row.get("self_with_untimed_callees").is_none(),
        })
    });
    let reported: Option<Vec<Reported>> = reported.collect();
    reported.context("nopal report --json has other fields")
}
