//! How long functions were off or counted in the selected time, and how many calls were counted.

use anyhow::Result;
use nopal_trace::{SiteStates, Trace, losses};

use crate::filter::Filter;
use crate::names::Names;
use crate::span::{begin, end};
use crate::text::{count, duration, several};

/// The line below a table of calls some of whose functions were off.
pub const OFF: &str = "off: so long the function was not recorded, to hold the budget; its calls then are missing (≥), and their time is that of their callers";

/// The same where functions of it were counted.
pub const COUNTED: &str =
    "counted: so many of the calls were only counted; their time is that of their callers";

/// The same where times are estimated from sampled calls.
pub const ESTIMATED: &str = "≈ with the error: estimated for the counted calls from some that were recorded at random; self with that of callees that were not timed";

/// The same where self times are [marked](with_untimed).
pub const WITH_UNTIMED: &str = "† self with untimed callees: the time of calls that were counted or off is that of their callers";

/// The same without the time, or the number.
pub const CALLS_OFF: &str = "≥ calls: the function was off or counted for a time; its calls then are missing here, and their time is that of their callers";

/// Whether it is a part of a trace, of some of its threads.
pub fn is_of_some_threads(trace: &Trace) -> bool {
    let part = trace.session().selection.as_deref();
    part.is_some_and(|part| part.threads.is_some())
}

/// The times and calls of functions that were not timed.
#[derive(Clone, Debug, Default)]
pub struct Off {
    functions: Vec<Untimed>,
    /// Any of them lacks calls.
    lacks_any: bool,
    /// Functions all of whose calls in the selected time are selected, also those that were counted.
    selected: Vec<bool>,
}

/// How long a function was off, and counted, and its counted calls.
#[derive(Clone, Copy, Debug, Default)]
struct Untimed {
    off_ns: u64,
    counted_ns: u64,
    calls: u64,
}

impl Off {
    pub fn new(trace: &Trace, names: &Names, filter: Option<&Filter>) -> Off {
        let states = SiteStates::of(trace);
        let sites = states.sites().chain(states.counted_sites());
        let mut sites = sites.peekable();
        if sites.peek().is_none() {
            return Off::default();
        }
        let from = filter.and_then(|filter| filter.from).unwrap_or(0);
        let until = filter.and_then(|filter| filter.until).unwrap_or(u64::MAX);
        let time = from.max(begin(trace))..=until.min(end(trace));
        // The last look comes after the last record.
        let looks = from..=until;
        let mut sites: Vec<u32> = sites.collect();
        sites.sort_unstable();
        sites.dedup();
        let mut functions = vec![Untimed::default(); names.functions().len()];
        for site in sites {
            let ns = |ticks| trace.clocks().duration_ns(ticks);
            let function = &mut functions[names.number(site) as usize];
            function.off_ns = function.off_ns.max(ns(states.off(site, &time)));
            let counted = ns(states.counted(site, &time));
            function.counted_ns = function.counted_ns.max(counted);
            let calls = states.calls(site, &looks);
            function.calls = function.calls.saturating_add(calls);
        }
        // The counts of a flight recorder have the calls that it gave up.
        let is_given_up = losses::begin_later(trace.notes());
        let is_known = !filter.is_some_and(Filter::chooses_calls)
            && !is_of_some_threads(trace)
            && !is_given_up;
        let selected = match filter {
            _ if !is_known => Vec::new(),
            Some(filter) => filter.functions(names),
            None => vec![true; names.functions().len()],
        };
        Off {
            lacks_any: functions.iter().any(Untimed::lacks_calls),
            functions,
            selected,
        }
    }

    fn at(&self, function: u32) -> Untimed {
        let known = self.functions.get(function as usize);
        known.copied().unwrap_or_default()
    }

    /// How long a function was off.
    pub fn of(&self, function: u32) -> u64 {
        self.at(function).off_ns
    }

    pub fn was(&self, function: u32) -> bool {
        self.of(function) > 0
    }

    /// Whether there may be more calls than are known.
    pub fn calls_are_least(&self, function: u32) -> bool {
        self.was(function) || self.lacks_calls(function) && !self.knows_counted(function)
    }

    /// Whether the self time of calls may have in it that of callees that were not timed: it is not known what these
    /// were, so where there were any, of all calls that made calls at all. `total` and `own` are in one unit.
    pub fn may_be_in_self(&self, total: u64, own: u64) -> bool {
        own < total && self.lacks_any
    }

    /// How many of its calls were counted, as far as that is known for the selection.
    pub fn counted(&self, function: u32) -> u64 {
        match self.knows_counted(function) {
            true => self.at(function).calls,
            false => 0,
        }
    }

    /// The calls of some functions that have no records, in words.
    fn describe(&self, functions: impl Iterator<Item = u32>) -> Vec<String> {
        let (mut counted, mut are_unknown, mut off, mut off_ns) = (0u64, false, 0, 0);
        for function in functions {
            counted = counted.saturating_add(self.counted(function));
            are_unknown |= self.at(function).calls > 0 && !self.knows_counted(function);
            off += u64::from(self.was(function));
            off_ns = off_ns.max(self.of(function));
        }
        let mut parts = Vec::new();
        if counted > 0 {
            let calls = several(counted, "call that was", "calls that were");
            parts.push(format!("{calls} only counted"));
        }
        if are_unknown {
            parts.push("calls that were only counted".into());
        }
        let off_ns = duration(off_ns);
        match off {
            0 => {}
            1 => parts.push(format!("calls while the function was off, for {off_ns}")),
            _ => parts.push(format!(
                "calls while {} functions were off, for up to {off_ns}",
                count(off)
            )),
        }
        parts
    }

    /// The same, in lines for people.
    pub fn left_out(&self, functions: impl Iterator<Item = u32>) -> Vec<String> {
        let parts = self.describe(functions).into_iter();
        parts.map(|part| format!("left out: {part}")).collect()
    }

    /// Whether it is known how many calls of a function that were counted are selected.
    fn knows_counted(&self, function: u32) -> bool {
        let known = self.selected.get(function as usize);
        known.copied().unwrap_or(false)
    }

    /// Whether a function was called, or may have been, while it was off or counted.
    pub fn hides_calls(&self, function: u32) -> bool {
        let Untimed { off_ns, calls, .. } = self.at(function);
        off_ns > 0 || calls > 0
    }

    /// Whether calls of a function may be missing that were made while it was off or counted.
    pub fn lacks_calls(&self, function: u32) -> bool {
        self.at(function).lacks_calls()
    }
}

impl Untimed {
    fn lacks_calls(&self) -> bool {
        self.off_ns > 0 || self.counted_ns > 0 || self.calls > 0
    }
}

/// The calls that have no records of the functions that match, in lines for people.
pub fn left_out(
    trace: &Trace,
    names: &Names,
    pattern: &str,
    filter: Option<&Filter>,
) -> Result<Vec<String>> {
    let off = Off::new(trace, names, filter);
    Ok(off.left_out(names.wanted(pattern)?.into_iter()))
}

/// The same of the functions that a filter selects by name, in words; none if it selects none.
pub fn left_out_by(trace: &Trace, filter: &Filter) -> Option<String> {
    if filter.has_outside() {
        return None;
    }
    let names = Names::new(trace);
    let off = Off::new(trace, &names, Some(filter));
    let selected = filter.functions(&names);
    let functions = (0..).zip(selected).filter(|(_, selected)| *selected);
    let parts = off.describe(functions.map(|(function, _)| function));
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// A self time, marked where it may have in it that of callees that were not timed.
pub fn with_untimed(own: String, is_with_untimed: bool) -> String {
    match is_with_untimed {
        true => own + " †",
        false => own,
    }
}
