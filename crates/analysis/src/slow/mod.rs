//! `nopal slow`: the longest calls of a function.

mod checkpoints;
mod find;
mod inside;
mod places;
mod write;

pub use places::Places;
pub(crate) use write::{seconds, words};
pub use write::{values, write_json, write_text};

use anyhow::{Result, bail};
use nopal_trace::Trace;

use crate::drive::Drive;
use crate::losses;
use crate::names::Names;
use crate::off;
use crate::sort;
use crate::waits::Waited;
use checkpoints::Checkpoints;
use find::Finder;

/// The most calls that can be asked for.
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

/// The `number` longest calls of the functions that `pattern` matches, among those that the filter of `drive` selects.
/// The longest come first.
pub fn slowest(
    trace: &Trace,
    names: &Names,
    pattern: &str,
    number: usize,
    drive: &Drive,
) -> Result<Vec<SlowCall>> {
    let calls = longest(trace, names, &names.wanted(pattern)?, number, drive)?;
    if calls.is_empty() {
        let reason = losses::reason(trace, drive.filter);
        let left_out = off::left_out(trace, names, pattern, drive.filter)?;
        let left_out: String = left_out.iter().map(|line| format!("; {line}")).collect();
        bail!(
            "{pattern}: no call was recorded whose duration is known, and that the options select{reason}{left_out}"
        );
    }
    Ok(calls)
}

/// The same for functions by number. There may be none.
pub fn longest(
    trace: &Trace,
    names: &Names,
    wanted: &[u32],
    number: usize,
    drive: &Drive,
) -> Result<Vec<SlowCall>> {
    let number = number.min(MOST);
    let new = |_| Finder::new(names, wanted, number);
    let mut finders: Vec<Finder> = (0..drive.workers.max(1)).map(new).collect();
    drive.run(trace, &mut finders)?;
    let mut calls: Vec<SlowCall> = Vec::new();
    let mut checkpoints = Checkpoints::new();
    for (found, made) in finders.into_iter().map(Finder::finish) {
        calls.extend(found);
        checkpoints.extend(made);
    }
    sort::by_key(&mut calls, |call| {
        let ticks = call.end.saturating_sub(call.begin);
        (std::cmp::Reverse(ticks), call.begin, call.stream)
    });
    calls.truncate(number);
    inside::describe(trace, names, &mut calls, &checkpoints, drive.workers);
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Filter, Wanted};
    use nopal_abi as abi;
    use nopal_trace::synthetic::{Random, Recorder, clock};
    use nopal_trace::{Note, Session, Writer};

    const BEGIN: u64 = 1 << 33;
    const SITES: u32 = 6;
    const THREAD: u32 = 100;
    const RECORDS_OF_PACKET: usize = 7;

    /// A thread with calls that last for many packets and contain others, with losses, and with other stacks.
    fn made(directory: &std::path::Path, seed: u64) -> Trace {
        let mut random = Random::new(seed);
        let mut writer = Writer::create(directory, Session::default()).unwrap();
        let image = Note::Image {
            image: 1,
            path: "/opt/made".into(),
            identity: String::new(),
        };
        let sites = Note::Sites {
            image: 1,
            sites: (1..=SITES)
                .map(|site| (site, u64::from(site) * 16, 16, format!("f{site}")))
                .collect(),
        };
        for note in [clock(BEGIN), image, sites] {
            writer.note(&note).unwrap();
        }
        let mut recorder = Recorder::new(THREAD, THREAD, BEGIN);
        let mut stacks: [Vec<u32>; 2] = Default::default();
        let mut current = 0;
        let mut now = BEGIN;
        let has_losses = seed.is_multiple_of(2);
        let has_stacks = seed.is_multiple_of(3);
        for number in 0..6000 {
            now += random.below(4);
            if has_losses && random.below(1500) == 0 {
                recorder.lose(1);
            }
            let is_switch = has_stacks && random.below(700) == 0;
            if is_switch {
                current = 1 - current;
            }
            let stack = &mut stacks[current];
            let slot =
                |depth: usize| 0x7ffd_0000_8000 - (current as u64) * 0x40_0000 - 64 * depth as u64;
            if is_switch {
                recorder.resync(now, slot(stack.len()), abi::RESYNC_STACK);
            }
            let depth = stack.len();
            let returns = match depth {
                0 => false,
                1..4 => random.below(900) == 0,
                _ => depth > 12 || random.below(2) == 0,
            };
            if returns {
                let site = stack.pop().unwrap();
                recorder.exit(now, site, slot(stack.len()));
            } else {
                let site = 1 + random.below(u64::from(SITES)) as u32;
                recorder.entry(now, site, slot(depth));
                stack.push(site);
            }
            if number % RECORDS_OF_PACKET == 0 {
                recorder.end_chunk();
            }
        }
        recorder.finish(&mut writer).unwrap();
        writer.note(&clock(now + 1000)).unwrap();
        writer.sync_metadata().unwrap();
        drop(writer);
        Trace::open(directory).unwrap()
    }

    /// Calls of a thread that a filter selects are read without checkpoints.
    #[test]
    fn with_checkpoints_the_same_is_found() {
        let mut with_checkpoints = 0;
        for seed in 0..24 {
            let directory = tempfile::tempdir().unwrap();
            let trace = made(&directory.path().join("trace"), seed);
            let names = Names::new(&trace);
            let wanted = Wanted {
                threads: vec![THREAD],
                ..Wanted::default()
            };
            let filter = Filter::new(&trace, &wanted).unwrap();
            let [all, filtered] = [None, Some(&filter)].map(|filter| {
                let drive = Drive {
                    workers: 2,
                    filter,
                    ..Drive::default()
                };
                slowest(&trace, &names, "*", 30, &drive).unwrap()
            });
            assert_eq!(all, filtered, "seed {seed}");
            let mut finders = [Finder::new(&names, &[], 1)];
            Drive::default().run(&trace, &mut finders).unwrap();
            let [finder] = finders;
            let (_, checkpoints) = finder.finish();
            with_checkpoints += checkpoints.values().map(Vec::len).sum::<usize>();
        }
        assert!(with_checkpoints > 100, "{with_checkpoints}");
    }
}
