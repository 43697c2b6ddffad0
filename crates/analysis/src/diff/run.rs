//! The functions of one trace, as they are compared with those of others.

use std::collections::HashMap;

use anyhow::{Result, bail};
use nopal_symbols::demangle;
use nopal_trace::{Note, Trace};

use crate::drive::Drive;
use crate::losses;
use crate::names::{Function, Names, printable};
use crate::off::Off;
use crate::report::Stats;

/// One trace of a side.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// As the user named the trace.
    pub trace: String,
    /// The losses of the trace, as a line and as JSON; none if it is complete.
    pub losses: Option<(String, String)>,
    /// The options with which it was recorded.
    pub options: Vec<String>,
    /// The divisor of all numbers: the calls of the function that was asked for, else 1.
    pub times: u64,
    pub functions: Vec<Counted>,
}

/// A function of a trace, called or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    pub known: Known,
    pub calls: u64,
    pub unfinished: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    pub total_is_least: bool,
    pub self_is_least: bool,
    /// It was off or counted for a time: calls may be missing, and have no times.
    pub lacks_calls: bool,
    pub calls_are_least: bool,
    pub off_ns: u64,
    /// `self_ns` may have in it the time of callees that were not timed.
    pub self_with_untimed: bool,
    /// The durations of the calls whose begin and end are known.
    pub durations: Vec<(f64, u64)>,
}

/// The identity of a function, and its name as it is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    pub name: String,
    pub key: Key,
}

/// The identity of a function across traces: the same functions of two traces have equal keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub module: String,
    /// The name with parameters; for a function without a name, also its file's identity, since its address differs
    /// between builds.
    pub full: String,
    pub is_address: bool,
}

impl Known {
    fn new(function: &Function, identity: &str) -> Known {
        let is_address = is_address(&function.raw);
        let full = match is_address {
            true => format!("{} {identity}", function.raw),
            false => printable(&demangle(&function.raw)),
        };
        Known {
            name: function.name.clone(),
            key: Key {
                module: function.module.clone(),
                full,
                is_address,
            },
        }
    }
}

impl Key {
    /// The name without the suffix of a copy that the compiler made: `f.constprop.0`, `f(int) [clone .isra.0]`.
    pub fn original(&self) -> Option<&str> {
        if self.is_address {
            return None;
        }
        let end = self.full.find(" [clone ").or(self.full.find('.'));
        match &self.full[..end.unwrap_or(self.full.len())] {
            "" => Some(&self.full),
            original => Some(original),
        }
    }
}

/// Whether a name is a file's name and an address.
fn is_address(name: &str) -> bool {
    let digits = name.rsplit_once("+0x").map_or("", |(_, digits)| digits);
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

impl Run {
    /// Sums up a trace. `per`: the function by whose calls all numbers are divided.
    pub fn new(name: &str, trace: &Trace, per: Option<&str>, drive: &Drive) -> Result<Run> {
        let names = Names::new(trace);
        let per = per.map(|pattern| names.wanted(pattern)).transpose()?;
        let workers = Stats::of(trace, &names, drive)?;
        let sums = Stats::by_function(&workers, &names);
        let identities = identities(trace);
        let ns = |ticks| trace.clocks().duration_ns(ticks);
        let off = Off::new(trace, &names, drive.filter);
        let calls = |number: u32| {
            let recorded = sums[number as usize].calls;
            recorded.saturating_add(off.counted(number))
        };
        let functions = (0..).zip(names.functions()).zip(&sums).skip(1);
        let functions = functions.map(|((number, function), sum)| {
            let totals = &sum.totals;
            let identity = identities.get(&function.path).copied().unwrap_or("");
            let within = |ticks: u64| ns(ticks.clamp(totals.min, totals.max)) as f64;
            let durations = sum.durations.buckets();
            let lacks_calls = off.lacks_calls(number);
            Counted {
                known: Known::new(function, identity),
                calls: calls(number),
                unfinished: totals.unfinished.into(),
                total_ns: ns(totals.total.max(totals.own)),
                self_ns: ns(totals.own),
                total_is_least: totals.total_is_least || totals.own > totals.total || lacks_calls,
                self_is_least: totals.own_is_least || lacks_calls,
                lacks_calls,
                calls_are_least: off.calls_are_least(number),
                off_ns: off.of(number),
                self_with_untimed: off.may_be_in_self(totals.total, totals.own),
                durations: durations
                    .filter(|(_, count)| *count > 0)
                    .map(|(ticks, count)| (within(ticks), count))
                    .collect(),
            }
        });
        let functions: Vec<Counted> = functions.collect();
        let name = printable(name);
        let times = match per {
            None => 1,
            Some(per) => per.iter().map(|number| calls(*number)).sum(),
        };
        if times == 0 {
            bail!("no selected call of {name} is one of the function to divide by");
        }
        Ok(Run {
            losses: losses::line(trace).zip(losses::json(trace)),
            options: trace.session().options.clone(),
            trace: name,
            times,
            functions,
        })
    }
}

/// The identities of files, by their paths as names have them.
fn identities(trace: &Trace) -> HashMap<String, &str> {
    let images = trace.notes().iter().filter_map(|note| match note {
        Note::Image { path, identity, .. } => Some((printable(path), identity.as_str())),
        _ => None,
    });
    images.collect()
}
