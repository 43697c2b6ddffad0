//! `nopal hist`: the distribution of values of calls.

mod bars;
mod write;

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use nopal_trace::{ThreadInfo, Trace};

use crate::drive::Drive;
use crate::filter::Filter;
use crate::kernel_events::Whereabouts;
use crate::names::{Names, ThreadNames};
use crate::sort;
use crate::text::count;
use crate::tracers::{Case, Past, Tracer};
use crate::values::{Value, ValueSelection, ValueSink, cases, collect_values};
pub use bars::{Bar, Scale, bars};
pub use write::{write_json, write_text};

/// The grouping of values into histograms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    #[default]
    Nothing,
    Thread,
    Process,
    Function,
    /// The processor on which a call or a case ended.
    Processor,
    /// By the groups of [`ValueSelection::group_by`].
    Value,
}

/// Most groups by a value: more histograms would not help.
const MOST_GROUPS: usize = 10_000;

/// Stands for an unknown processor.
const NOWHERE: u64 = 1 << 32;

/// Significant digits of one histogram, and of many, which would take too much memory else.
const DIGITS: u8 = 4;
const DIGITS_OF_MANY: u8 = 2;

/// The distribution of some values. Quantiles are right to four digits, or two of several histograms.
pub struct Distribution {
    /// Values from 0 on.
    histogram: Histogram<u64>,
    /// Values below 0, turned around.
    negative: Histogram<u64>,
    sum: i128,
    least: i64,
    most: i64,
}

impl Distribution {
    /// `digits` are significant.
    pub fn new(digits: u8) -> Result<Distribution> {
        let new = || Histogram::new(digits).context("cannot make a histogram");
        Ok(Distribution {
            histogram: new()?,
            negative: new()?,
            sum: 0,
            least: i64::MAX,
            most: i64::MIN,
        })
    }

    #[inline]
    pub fn add(&mut self, value: i64) {
        let histogram = if value < 0 {
            &mut self.negative
        } else {
            &mut self.histogram
        };
        // It grows for any value, so nothing fails.
        let _ = histogram.record(value.unsigned_abs());
        self.sum += i128::from(value);
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }

    pub fn merge(&mut self, other: &Distribution) -> Result<()> {
        self.histogram.add(&other.histogram)?;
        self.negative.add(&other.negative)?;
        self.sum += other.sum;
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
        Ok(())
    }

    pub fn count(&self) -> u64 {
        self.histogram.len() + self.negative.len()
    }

    pub fn least(&self) -> i64 {
        self.least
    }

    pub fn most(&self) -> i64 {
        self.most
    }

    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count().max(1) as f64
    }

    /// The value that this part of all values, between 0 and 1, does not exceed.
    pub fn quantile(&self, quantile: f64) -> i64 {
        let rank = ((self.count() as f64 * quantile).ceil() as u64).clamp(1, self.count().max(1));
        let mut seen = 0;
        let reached = self.ranges().find(|(_, _, count)| {
            seen += count;
            seen >= rank
        });
        let value = reached.map_or(self.most, |(_, most, _)| most);
        value.clamp(self.least, self.most)
    }

    /// Values that occurred, ascending, and how often. Of those that the histogram does not tell apart, the one
    /// nearest to 0: sizes are often round numbers.
    pub fn values(&self) -> impl Iterator<Item = (i64, u64)> {
        let nearest = |least: i64, most: i64| if least < 0 { most } else { least };
        self.ranges()
            .map(move |(least, most, count)| (nearest(least, most), count))
    }

    /// Values that the histogram does not tell apart, from the least to the most, and how often they occurred.
    fn ranges(&self) -> impl Iterator<Item = (i64, i64, u64)> {
        let negative: Vec<_> = ranges(&self.negative).collect();
        let negative = negative.into_iter().rev();
        let negative = negative.map(|(least, most, count)| (-most, -least, count));
        negative.chain(ranges(&self.histogram))
    }
}

fn ranges(histogram: &Histogram<u64>) -> impl Iterator<Item = (i64, i64, u64)> {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    histogram.iter_recorded().map(move |at| {
        let most = at.value_iterated_to();
        let least = histogram.lowest_equivalent(most);
        (signed(least), signed(most), at.count_at_value())
    })
}

/// A distribution and its group.
pub struct Group {
    pub key: u64,
    /// Empty for all values.
    pub name: String,
    pub distribution: Distribution,
}

/// The distributions of `what`, those with most values first, and lines about the values that are missing.
pub fn distributions(
    trace: &Trace,
    names: &Names,
    what: &ValueSelection,
    filter: &Filter,
    by: By,
    drive: &Drive,
) -> Result<(Vec<Group>, Vec<String>)> {
    if let Some(tracer) = what.tracer() {
        check(tracer, by)?;
    }
    let whereabouts = whereabouts(trace, by)?;
    let new = || Distributions::new(Grouping::new(by, whereabouts.as_ref()));
    let (sinks, notes) = collect_values(trace, names, what, filter, drive, new)?;
    let mut is_beyond = sinks.iter().any(|sink| sink.beyond);
    let sinks = sinks.into_iter();
    let mut all: HashMap<u64, Distribution> = HashMap::new();
    for (key, distribution) in sinks.flat_map(|sink| sink.of) {
        match all.get_mut(&key) {
            Some(sum) => sum.merge(&distribution)?,
            None => {
                all.insert(key, distribution);
            }
        }
    }
    is_beyond |= by == By::Value && all.len() > MOST_GROUPS;
    ensure!(
        !is_beyond,
        "{}: more than {} groups",
        what.text,
        count(MOST_GROUPS as u64)
    );
    Ok((groups(trace, names, all, by), notes))
}

/// The distributions of the durations of a tracer's cases, and what it missed. A case belongs to the thread in which it
/// ended. `found` gets each that passes the filter.
pub fn of_tracer(
    trace: &Trace,
    names: &Names,
    tracer: &Tracer,
    filter: &Filter,
    by: By,
    found: impl FnMut(&Case),
) -> Result<(Vec<Group>, Past)> {
    check(tracer, by)?;
    let whereabouts = whereabouts(trace, by)?;
    let mut all = Distributions::new(Grouping::new(by, whereabouts.as_ref()));
    let past = cases(trace, names, tracer, filter, &mut all, found)?;
    let all = all.of.into_iter().collect();
    Ok((groups(trace, names, all, by), past))
}

fn check(tracer: &Tracer, by: By) -> Result<()> {
    ensure!(
        !matches!(by, By::Function | By::Value),
        "{}: cases can be grouped by thread, process or cpu",
        tracer.name()
    );
    Ok(())
}

/// The positions of threads on processors, if groups need them.
pub fn whereabouts(trace: &Trace, by: By) -> Result<Option<Whereabouts>> {
    (by == By::Processor)
        .then(|| Whereabouts::new(trace))
        .transpose()
}

fn place(whereabouts: Option<&Whereabouts>, thread: usize, clock: u64) -> u64 {
    let processor = whereabouts.and_then(|all| all.processor(thread, clock));
    processor.map_or(NOWHERE, u64::from)
}

fn groups(trace: &Trace, names: &Names, all: HashMap<u64, Distribution>, by: By) -> Vec<Group> {
    let mut all: Vec<(u64, Distribution)> = all.into_iter().collect();
    sort::by_key(&mut all, |(key, distribution)| {
        (std::cmp::Reverse(distribution.count()), *key)
    });
    let threads = trace.tasks();
    let thread_names = ThreadNames::new(trace);
    let name = |key: u64| match by {
        By::Nothing => String::new(),
        By::Function => names.functions()[key as usize].name.clone(),
        By::Process => format!("process {key}"),
        By::Processor if key == NOWHERE => "CPU not known".to_string(),
        By::Processor => format!("CPU {key}"),
        By::Value => (key as i64).to_string(),
        By::Thread => {
            let thread = &threads[key as usize];
            format!("thread {} {}", thread.thread, thread_names.of(thread))
        }
    };
    let groups = all.into_iter().map(|(key, distribution)| Group {
        key,
        name: name(key),
        distribution,
    });
    groups.collect()
}

/// The groups of values, thread by thread.
#[derive(Clone, Copy)]
pub struct Grouping<'a> {
    by: By,
    whereabouts: Option<&'a Whereabouts>,
    thread: u64,
    process: u64,
}

impl<'a> Grouping<'a> {
    pub fn new(by: By, whereabouts: Option<&'a Whereabouts>) -> Grouping<'a> {
        Grouping {
            by,
            whereabouts,
            thread: 0,
            process: 0,
        }
    }

    /// The next values are of this thread, as in [`ValueSink::begin`].
    pub fn begin(&mut self, stream: usize, thread: &ThreadInfo) {
        self.thread = stream as u64;
        self.process = u64::from(thread.process);
    }

    /// The [`Group::key`] of a value's group.
    #[inline]
    pub fn key(&self, value: &Value) -> u64 {
        match self.by {
            By::Nothing => 0,
            By::Thread => self.thread,
            By::Process => self.process,
            By::Function => u64::from(value.function),
            By::Value => value.group as u64,
            By::Processor => place(self.whereabouts, self.thread as usize, value.end),
        }
    }
}

struct Distributions<'a> {
    grouping: Grouping<'a>,
    digits: u8,
    known: HashMap<u64, usize>,
    /// The last key, and where its distribution is.
    last: (u64, usize),
    of: Vec<(u64, Distribution)>,
    /// There were too many groups.
    beyond: bool,
}

impl<'a> Distributions<'a> {
    fn new(grouping: Grouping<'a>) -> Distributions<'a> {
        Distributions {
            grouping,
            digits: match grouping.by {
                By::Nothing => DIGITS,
                _ => DIGITS_OF_MANY,
            },
            known: HashMap::new(),
            last: (0, usize::MAX),
            of: Vec::new(),
            beyond: false,
        }
    }

    #[cold]
    fn find(&mut self, key: u64) -> Option<usize> {
        if let Some(&at) = self.known.get(&key) {
            return Some(at);
        }
        let at = self.of.len();
        if self.grouping.by == By::Value && at == MOST_GROUPS {
            self.beyond = true;
            return None;
        }
        self.of.push((key, Distribution::new(self.digits).ok()?));
        self.known.insert(key, at);
        Some(at)
    }
}

impl ValueSink for Distributions<'_> {
    fn begin(&mut self, stream: usize, thread: &ThreadInfo) {
        self.grouping.begin(stream, thread);
    }

    fn add(&mut self, value: Value) {
        let key = self.grouping.key(&value);
        if self.last.0 != key || self.last.1 == usize::MAX {
            match self.find(key) {
                Some(at) => self.last = (key, at),
                None => return,
            }
        }
        self.of[self.last.1].1.add(value.value);
    }
}
