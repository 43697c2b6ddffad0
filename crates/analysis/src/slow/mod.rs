//! `nopal slow`: the longest calls of a function.

mod find;
mod inside;
mod places;
mod write;

pub use places::Places;
pub(crate) use write::{seconds, words};
pub use write::{write_json, write_text};

use anyhow::{Result, bail};
use nopal_trace::Trace;

use crate::drive::Drive;
use crate::losses;
use crate::names::Names;
use crate::waits::Waited;
use find::Finder;

/// Most calls that are looked for.
pub const MOST: usize = 10_000;

/// A long call. Clocks are values of the counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCall {
    /// The trace's thread.
    pub stream: usize,
    pub function: u32,
    pub begin: u64,
    pub end: u64,
    /// The begin or the end is not known: it took at least this long.
    pub is_least: bool,
    pub arguments: Option<[u64; 6]>,
    pub result: Option<u64>,
    /// The functions that led to it, outermost first; none if they are not known.
    pub path: Option<Vec<u32>>,
    /// Self times by function, in ticks: its own, and those of the calls in it. The largest come first.
    pub spent: Vec<(u32, u64)>,
    /// Its time off the processor; none if context switches were not recorded.
    pub waited: Option<Waited>,
}

/// The `number` longest of the calls that the filter of `drive` selects of the functions that `pattern` means, the
/// longest first.
pub fn slowest(
    trace: &Trace,
    names: &Names,
    pattern: &str,
    number: usize,
    drive: &Drive,
) -> Result<Vec<SlowCall>> {
    let wanted = names.wanted(pattern)?;
    let number = number.min(MOST);
    let new = |_| Finder::new(names, &wanted, number);
    let mut finders: Vec<Finder> = (0..drive.workers.max(1)).map(new).collect();
    drive.run(trace, &mut finders)?;
    let mut calls: Vec<SlowCall> = finders.into_iter().flat_map(Finder::into_calls).collect();
    if calls.is_empty() {
        let reason = losses::reason(trace);
        bail!(
            "{pattern}: no call was recorded whose duration is known, and that the options select{reason}"
        );
    }
    calls.sort_by_key(|call| {
        let ticks = call.end.saturating_sub(call.begin);
        (std::cmp::Reverse(ticks), call.begin, call.stream)
    });
    calls.truncate(number);
    inside::describe(trace, names, &mut calls, drive.workers);
    Ok(calls)
}
