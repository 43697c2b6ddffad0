//! A program that slept begins to work: the time until its cost is within the budget.

use super::{OPTIONS, TURNS};
use crate::run::{Paths, Ran, remove, run};
use crate::samples::in_turn;
use crate::table::{Bound, Row};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// A round takes some 9 ms.
const ROWS: &str = "4000";
const ROUNDS: usize = 300;
const IDLE_MS: &str = "1500";
/// The added time counts as within the budget if that of the rounds that end in the next so many milliseconds is.
const WINDOW_MS: f64 = 500.0;
const BUDGET: f64 = 1.05;

/// When a round ended, since the first began, and its processor time, in milliseconds.
struct Round {
    ended: f64,
    processor: f64,
}

/// Each run is compared with the untraced one before it, round by round.
pub fn measure(paths: &Paths, program: &Path) -> Result<Row> {
    let rounds = ROUNDS.to_string();
    let arguments = [ROWS, &rounds, IDLE_MS];
    let cache = paths.directory.join("cold-cache");
    let mut plain = || rounds_of(&run(Command::new(program).args(arguments))?);
    let mut within = || {
        remove(&cache)?;
        rounds_of(&paths.record_cached(&OPTIONS, program, &arguments, &cache)?)
    };
    let results = in_turn(TURNS, &mut [&mut plain, &mut within])?;
    let [plain, within] = &results[..] else {
        unreachable!("two kinds of runs were asked for");
    };
    let until = plain
        .iter()
        .zip(within)
        .map(|(plain, within)| until_within(plain, within).unwrap_or(f64::INFINITY));
    let first: Vec<f64> = plain
        .iter()
        .zip(within)
        .filter_map(|(plain, within)| over(plain, within, 0))
        .collect();
    let first = crate::samples::Samples::from_iter(first);
    let what = "a step in load, from sleep to full, cold: time until within the budget";
    Ok(Row::new(what, "ms", until.collect())
        .bound(Bound::AtMost(500.0))
        .note(format!(
            "the next {WINDOW_MS:.0} ms cost at most 5 %; the first ones cost {:.1} %",
            (first.median() - 1.0) * 100.0
        )))
}

fn rounds_of(ran: &Ran) -> Result<Vec<Round>> {
    let get = |what: &str, at: usize| {
        let name = format!("{what}_{at}");
        Ok::<f64, anyhow::Error>(ran.printed.get(&name)? / 1e6)
    };
    (0..ROUNDS)
        .map(|at| {
            Ok(Round {
                ended: get("ended", at)?,
                processor: get("processor", at)?,
            })
        })
        .collect::<Result<Vec<_>>>()
        .context("a round is missing")
}

/// The end of the last round before the first window that costs no more than the budget.
fn until_within(plain: &[Round], within: &[Round]) -> Option<f64> {
    let first = (0..within.len())
        .find(|from| over(plain, within, *from).is_some_and(|times| times <= BUDGET))?;
    Some(
        first
            .checked_sub(1)
            .map_or(0.0, |before| within[before].ended),
    )
}

/// The processor time of the rounds from `from` on that end within a window, in multiples of the untraced; `None` if the
/// run ended before the window did.
fn over(plain: &[Round], within: &[Round], from: usize) -> Option<f64> {
    let begin = from
        .checked_sub(1)
        .map_or(0.0, |before| within[before].ended);
    let until = within
        .iter()
        .position(|round| round.ended >= begin + WINDOW_MS)?;
    let sum = |rounds: &[Round]| {
        rounds[from..until]
            .iter()
            .map(|round| round.processor)
            .sum::<f64>()
    };
    Some(sum(within) / sum(plain))
}
