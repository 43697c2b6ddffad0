//! How long functions were off, for the sake of a budget, in the time that is looked at.

use nopal_trace::{SiteStates, Trace};

use crate::filter::Filter;
use crate::names::Names;
use crate::span::{begin, end};

/// What a table of calls has below where functions of it were off.
pub const OFF: &str = "off: so long the function was not recorded, to hold the budget; its calls then are missing (≥), and their time is that of their callers";

/// The same where it is not said how long.
pub const CALLS_OFF: &str = "≥ calls: the function was off for a time, to hold the budget; its calls then are missing, and their time is that of their callers";

/// Nanoseconds by function.
#[derive(Clone, Debug, Default)]
pub struct Off(Vec<u64>);

impl Off {
    pub fn new(trace: &Trace, names: &Names, filter: Option<&Filter>) -> Off {
        let states = SiteStates::of(trace);
        let mut sites = states.sites().peekable();
        if sites.peek().is_none() {
            return Off::default();
        }
        let from = filter.and_then(|filter| filter.from).unwrap_or(0);
        let until = filter.and_then(|filter| filter.until).unwrap_or(u64::MAX);
        let time = from.max(begin(trace))..=until.min(end(trace));
        let mut off = vec![0; names.functions().len()];
        for site in sites {
            let ns = trace.clocks().duration_ns(states.off(site, &time));
            let function = &mut off[names.number(site) as usize];
            *function = ns.max(*function);
        }
        Off(off)
    }

    /// How long a function was off.
    pub fn of(&self, function: u32) -> u64 {
        self.0.get(function as usize).copied().unwrap_or(0)
    }

    pub fn was(&self, function: u32) -> bool {
        self.of(function) > 0
    }
}
