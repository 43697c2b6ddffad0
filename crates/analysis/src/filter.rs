//! Selects calls, and counts the others.

mod moment;
mod selected;

use std::sync::Arc;

use anyhow::{Result, bail};
use nopal_symbols::{Glob, Selection, nearest, or_nearest};
use nopal_trace::{Clocks, ThreadInfo, Trace};

use crate::losses;
use crate::names::{Function, Names, ThreadNames};
use crate::range::{Checkpoints, ThreadCheckpoints};
use crate::text::{count, duration};

pub use moment::Moment;
pub use selected::Selected;

/// A user's selection. Empty lists stand for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Calls of these functions (`GLOB[@MODULE]`), and the calls in them.
    pub only: Vec<String>,
    /// Neither calls of these functions, nor calls in them.
    pub not: Vec<String>,
    pub processes: Vec<u32>,
    pub threads: Vec<u32>,
    /// Globs of the names of threads.
    pub comms: Vec<String>,
    /// Calls that took less are left out.
    pub least_ns: u64,
    /// Calls of which no part is within this time are left out.
    pub from: Option<Moment>,
    pub until: Option<Moment>,
}

/// A selection of the calls of one trace.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// By thread of the trace; none: all.
    threads: Option<Vec<bool>>,
    /// By site; none: all.
    choices: Option<Vec<Choice>>,
    pub least_ns: u64,
    /// Values of the counter.
    pub from: Option<u64>,
    pub until: Option<u64>,
    /// Places in the trace from which the selected time can be read.
    pub checkpoints: Option<Arc<Checkpoints>>,
}

/// Which calls are selected where a function is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Its calls, with all calls in them.
    Yes,
    /// Its calls within selected calls only.
    Inside,
    /// Neither its calls nor the calls in them.
    No,
}

impl Filter {
    /// All that a trace is of: of one that was selected from another, the time of the selection.
    pub fn all(trace: &Trace) -> Filter {
        let selection = trace.session().selection.as_ref();
        Filter {
            from: selection.and_then(|selection| selection.from),
            until: selection.and_then(|selection| selection.until),
            ..Filter::default()
        }
    }

    /// Leaves out what is before the one value of the counter or after the other.
    pub fn narrow(&mut self, from: Option<u64>, until: Option<u64>) {
        self.from = self.from.max(from);
        self.until = self.until.into_iter().chain(until).min();
    }

    /// An error if no thread, or no function, is selected.
    pub fn new(trace: &Trace, wanted: &Wanted) -> Result<Filter> {
        let moment = |moment: &Option<Moment>| {
            let moment = moment.as_ref();
            moment.map(|moment| moment.counter(trace)).transpose()
        };
        let mut filter = Filter {
            threads: threads(trace, wanted)?,
            choices: choices(trace, wanted)?,
            least_ns: wanted.least_ns,
            ..Filter::all(trace)
        };
        filter.narrow(moment(&wanted.from)?, moment(&wanted.until)?);
        if let (Some(from), Some(until)) = (filter.from, filter.until)
            && from > until
        {
            bail!("--until is before --from");
        }
        Ok(filter)
    }

    /// Selects these threads only, by their places in the trace.
    pub fn select_threads(&mut self, places: &[u64], trace: &Trace) {
        let all = 0..trace.threads().len() as u64;
        self.threads = Some(all.map(|place| places.contains(&place)).collect());
    }

    pub fn is_everything(&self) -> bool {
        self.threads.is_none() && self.choices.is_none() && !self.selects_by_time()
    }

    fn selects_by_time(&self) -> bool {
        self.least_ns > 0 || self.from.is_some() || self.until.is_some()
    }

    /// Whether a thread of the trace, by its place, is selected.
    pub fn has(&self, stream: usize) -> bool {
        let threads = self.threads.as_ref();
        threads.is_none_or(|threads| threads.get(stream).copied().unwrap_or(false))
    }

    pub(crate) fn checkpoints_of(&self, thread: &ThreadInfo) -> Option<&ThreadCheckpoints> {
        self.checkpoints.as_ref()?.get(&thread.key())
    }

    /// The selected threads.
    pub fn threads<'a>(&self, trace: &'a Trace) -> Vec<ThreadInfo<'a>> {
        let threads = trace.threads().into_iter().enumerate();
        let selected = threads.filter(|(stream, _)| self.has(*stream));
        selected.map(|(_, thread)| thread).collect()
    }

    /// Whether threads are selected.
    pub fn has_threads(&self) -> bool {
        self.threads.is_some()
    }

    /// Which functions are selected themselves, not only in calls of others, by their numbers.
    pub fn functions(&self, names: &Names) -> Vec<bool> {
        let mut selected = vec![self.choices.is_none(); names.functions().len()];
        let choices = self.choices.iter().flatten();
        for (site, choice) in (0..).zip(choices) {
            selected[names.number(site) as usize] |= *choice == Choice::Yes;
        }
        selected
    }

    /// Whether calls of selected functions may be left out by what is not known of counted ones: their threads, callers
    /// and durations.
    pub fn chooses_calls(&self) -> bool {
        let choices = self.choices.as_ref();
        let excludes = choices.is_some_and(|choices| choices.contains(&Choice::No));
        self.has_threads() || excludes || self.least_ns > 0
    }

    /// Whether functions are selected.
    pub fn has_functions(&self) -> bool {
        self.choices.is_some()
    }

    pub fn choice(&self, site: u32) -> Choice {
        match &self.choices {
            None => Choice::Yes,
            Some(choices) => choices
                .get(site as usize)
                .copied()
                .unwrap_or(Choice::Inside),
        }
    }

    /// Whether records outside of all calls are selected: only if no functions are.
    pub fn has_outside(&self) -> bool {
        let choices = self.choices.as_ref();
        choices.is_none_or(|choices| !choices.contains(&Choice::Inside))
    }
}

fn threads(trace: &Trace, wanted: &Wanted) -> Result<Option<Vec<bool>>> {
    let Wanted {
        processes,
        threads,
        comms,
        ..
    } = wanted;
    if processes.is_empty() && threads.is_empty() && comms.is_empty() {
        return Ok(None);
    }
    let comms: Vec<Glob> = comms
        .iter()
        .map(|comm| Glob::parse(comm))
        .collect::<Result<_>>()?;
    let names = ThreadNames::new(trace);
    let is_selected = |thread: &ThreadInfo| {
        (processes.is_empty() || processes.contains(&thread.process))
            && (threads.is_empty() || threads.contains(&thread.thread))
            && (comms.is_empty() || comms.iter().any(|comm| comm.matches(&names.of(thread))))
    };
    let selected: Vec<bool> = trace.threads().iter().map(is_selected).collect();
    if !selected.contains(&true) {
        bail!(
            "no thread of this trace matches --pid, --tid and --comm: `nopal report --threads` shows all"
        );
    }
    Ok(Some(selected))
}

fn choices(trace: &Trace, wanted: &Wanted) -> Result<Option<Vec<Choice>>> {
    if wanted.only.is_empty() && wanted.not.is_empty() {
        return Ok(None);
    }
    let names = Names::new(trace);
    let (only, not) = (
        Selection::new(&wanted.only, &[])?,
        Selection::new(&wanted.not, &[])?,
    );
    let of = |selection: &Selection, function: &Function| {
        selection.chooses(&[&function.raw], &function.module)
    };
    let choice = |function: &Function| {
        if !wanted.not.is_empty() && of(&not, function) {
            Choice::No
        } else if of(&only, function) {
            Choice::Yes
        } else {
            Choice::Inside
        }
    };
    let by_function: Vec<Choice> = names.functions().iter().map(choice).collect();
    if !by_function.contains(&Choice::Yes) {
        let is_wanted = |function: &Function| of(&only, function);
        let near = match wanted.only.as_slice() {
            [pattern] if !names.functions().iter().any(is_wanted) => {
                let name = pattern.split('@').next().unwrap_or(pattern);
                let functions = names.functions().iter();
                or_nearest(&nearest(
                    functions.map(|function| function.name.as_str()),
                    name,
                ))
            }
            _ => String::new(),
        };
        bail!("no function of this trace matches -F and -N{near}");
    }
    let sites = 0..names.sites() as u32;
    let choices = sites.map(|site| by_function[names.number(site) as usize]);
    Ok(Some(choices.collect()))
}

/// The number of calls, and how many of them each part of a filter left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub seen: u64,
    pub threads: u64,
    pub short: u64,
    pub time: u64,
}

/// A filter at work on one thread after the other.
#[derive(Clone)]
pub struct Sieve<'a> {
    filter: &'a Filter,
    clocks: &'a Clocks,
    /// In ticks of the counter.
    time: (u64, u64),
    is_other_thread: bool,
    pub left_out: LeftOut,
}

impl<'a> Sieve<'a> {
    pub fn new(filter: &'a Filter, trace: &'a Trace) -> Sieve<'a> {
        Sieve {
            filter,
            clocks: trace.clocks(),
            time: (filter.from.unwrap_or(0), filter.until.unwrap_or(u64::MAX)),
            is_other_thread: false,
            left_out: LeftOut::default(),
        }
    }

    /// The next calls are of this thread of the trace.
    pub fn begin(&mut self, stream: usize) {
        self.is_other_thread = !self.filter.has(stream);
    }

    /// Whether a call's end must be known.
    pub fn needs_end(&self) -> bool {
        self.filter.least_ns > 0 || self.filter.from.is_some()
    }

    /// Whether a call that is known to have run from `begin` to `end` is selected, regardless of its duration.
    pub fn may_pass(&self, begin: u64, end: u64) -> bool {
        !self.is_other_thread && begin <= self.time.1 && end >= self.time.0
    }

    /// Whether a call that began at `begin` and took `ticks` is selected: at least a part of it is within the time.
    #[inline(always)]
    pub fn passes(&mut self, begin: u64, ticks: u64) -> bool {
        self.left_out.seen += 1;
        if self.is_other_thread {
            self.left_out.threads += 1;
        } else if begin > self.time.1 || begin.saturating_add(ticks) < self.time.0 {
            self.left_out.time += 1;
        } else if self.filter.least_ns > 0 && self.clocks.duration_ns(ticks) < self.filter.least_ns
        {
            self.left_out.short += 1;
        } else {
            return true;
        }
        false
    }
}

impl LeftOut {
    pub fn add(&mut self, other: &LeftOut) {
        self.seen += other.seen;
        self.threads += other.threads;
        self.short += other.short;
        self.time += other.time;
    }

    /// Why no call is left: `all 20 calls are left out: 12 of other threads, 8 shorter than 1.00 ms`.
    pub fn why(&self, filter: &Filter, trace: &Trace) -> String {
        if self.seen == 0 {
            let where_to_look = if filter.has_functions() {
                ", of those that -F and -N select"
            } else {
                ""
            };
            let reason = losses::reason(trace, Some(filter));
            return format!("no such call was recorded to its end{where_to_look}{reason}");
        }
        let parts = [
            (self.threads, "of other threads".to_string()),
            (self.time, "outside the time".to_string()),
            (
                self.short,
                format!("shorter than {}", duration(filter.least_ns)),
            ),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{} {what}", count(number)))
            .collect();
        let all = match self.seen {
            1 => "the only call is left out".to_owned(),
            more => format!("all {} calls are left out", count(more)),
        };
        format!("{all}: {}", parts.join(", "))
    }
}
