//! `nopal requests`: the cases of a section, the longest first, and where the time of each went.

mod find;
mod spent;
mod write;

pub use write::{write_json, write_text};

use anyhow::{Result, bail};
use nopal_trace::Trace;

use crate::drive::Drive;
use crate::filter::Filter;
use crate::names::Names;
use crate::tracers::{self, Roles, Tracer};
use crate::waits::{Waited, Waits};
use find::Longest;

/// The most requests that can be asked for.
pub const MOST: usize = 10_000;

/// The longest of the requests that were found.
pub struct Requests {
    pub section: String,
    pub longest: Vec<Request>,
    /// How many there are.
    pub all: u64,
    /// Lines about what is known to be missing.
    pub notes: Vec<String>,
}

/// From the begin of a case to its end. Clocks are values of the counter.
#[derive(Clone, Debug)]
pub struct Request {
    /// The value that pairs begin and end; none if the thread does.
    pub value: Option<u64>,
    pub begin: u64,
    pub end: u64,
    /// The trace's threads in which it began and ended.
    pub begin_stream: usize,
    pub end_stream: usize,
    /// It had not ended when the trace ended.
    pub is_open: bool,
    /// Whether `steps` are its critical path.
    pub has_path: bool,
    /// Its critical path in order of time: each step ends where the next begins. Without a path: the threads in which
    /// it began and ended, for all of its time.
    pub steps: Vec<Step>,
    /// Without a path: the other threads that recorded something meanwhile, in order of their first records.
    pub others: Vec<Step>,
}

/// A time in one thread.
#[derive(Clone, Debug)]
pub struct Step {
    pub stream: usize,
    pub begin: u64,
    pub end: u64,
    /// The step before woke it in a soft interrupt, perhaps for an unrelated reason.
    pub in_soft_interrupt: bool,
    /// Self times of functions within it, the largest first.
    pub spent: Vec<Spent>,
    /// None if context switches were not recorded.
    pub waited: Option<Waited>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// None: outside of all recorded calls.
    pub function: Option<u32>,
    pub ticks: u64,
    /// How much of it was off the processor.
    pub waited: Waited,
}

impl Request {
    pub fn ticks(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    /// The self times in all its steps.
    pub fn spent(&self) -> Vec<Spent> {
        spent::sum(self.steps.iter().flat_map(|step| &step.spent))
    }

    /// The waits in all its steps. None if context switches were not recorded.
    pub fn waited(&self) -> Option<Waited> {
        let mut steps = self.steps.iter();
        steps.try_fold(Waited::default(), |sum, step| Some(sum + step.waited?))
    }

    /// The time of all its steps. Without a path there may be two steps, whose sum is more than the request took.
    fn time_of_steps(&self) -> u64 {
        let steps = self.steps.iter();
        steps.fold(0, |sum, step| sum.saturating_add(step.ticks()))
    }
}

impl Step {
    pub fn ticks(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }
}

/// The `number` longest cases of a section, `FROM..TO`, that the filter selects: all, or those of one value. As with
/// other tracers, a case belongs to the thread in which it ended, and to no function.
pub fn longest(
    trace: &Trace,
    names: &Names,
    section: &str,
    value: Option<u64>,
    number: usize,
    filter: &Filter,
    drive: &Drive,
) -> Result<Requests> {
    let Some(tracer @ Tracer::Section(_)) = tracers::asked(section, names) else {
        bail!("{section:?} is no section: FROM..TO, from any function or marker to any other");
    };
    let roles = Roles::of_trace(std::slice::from_ref(&tracer), names, trace.markers());
    roles.check()?;
    let by_value = roles.by_value(0);
    if value.is_some() && !by_value {
        bail!(
            "{section}: its ends are paired in each thread, not by a value such as FUNCTION.arg1"
        );
    }
    let mut longest = Longest::new(number.min(MOST), value);
    let past = tracers::selected(trace, names, &tracer, filter, true, |case, is_open| {
        longest.add(case, is_open);
    })?;
    let all = longest.all;
    let waits = Waits::new(trace);
    let cases = longest.into_cases();
    if cases.is_empty() {
        bail!("{section}: no request has this value");
    }
    let follow = |(case, is_open)| find::request(case, is_open, by_value, waits.as_ref());
    let mut requests: Vec<Request> = cases.into_iter().map(follow).collect();
    spent::describe(trace, names, &mut requests, waits.as_ref(), drive)?;
    Ok(Requests {
        section: section.to_owned(),
        longest: requests,
        all,
        notes: past.describe(),
    })
}
