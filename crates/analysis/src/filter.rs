//! Selects calls, and counts the others.

use nopal_trace::{Clocks, ThreadInfo, Trace};

use crate::text::{count, duration, several};

/// Chooses calls. Times are nanoseconds; moments count from the trace's beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Ids of threads or processes; empty means all.
    pub threads: Vec<u32>,
    /// Calls that took less are left out.
    pub least_ns: u64,
    pub from_ns: Option<u64>,
    pub until_ns: Option<u64>,
}

impl Filter {
    pub fn has(&self, thread: &ThreadInfo) -> bool {
        let is = |number: &u32| [thread.thread, thread.process].contains(number);
        self.threads.is_empty() || self.threads.iter().any(is)
    }
}

/// The number of calls, and how many of them each part of a filter left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub seen: u64,
    pub threads: u64,
    pub short: u64,
    pub time: u64,
}

/// The counter where the trace begins: with a thread, if it has records of any.
pub fn begin(trace: &Trace) -> u64 {
    let threads = trace.threads();
    let of_threads = threads.iter().filter_map(|thread| thread.packets().next());
    let of_processors = trace.processors();
    let of_processors = of_processors.filter_map(|processor| processor.packets().next());
    let begin = of_threads.map(|packet| packet.clock_begin()).min();
    begin
        .or_else(|| of_processors.map(|packet| packet.clock_begin()).min())
        .unwrap_or(0)
}

/// The counter at its last record, likewise.
pub fn end(trace: &Trace) -> u64 {
    let threads = trace.threads();
    let of_threads = threads
        .iter()
        .filter_map(|thread| thread.packets().next_back());
    let of_processors = trace.processors();
    let of_processors = of_processors.filter_map(|processor| processor.packets().next_back());
    let end = of_threads.map(|packet| packet.clock_end()).max();
    end.or_else(|| of_processors.map(|packet| packet.clock_end()).max())
        .unwrap_or(0)
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
        let clocks = trace.clocks();
        let begin = clocks.monotonic_ns(begin(trace));
        let counter = |ns: u64| clocks.counter(begin.saturating_add(ns));
        Sieve {
            filter,
            clocks,
            time: (
                filter.from_ns.map_or(0, counter),
                filter.until_ns.map_or(u64::MAX, counter),
            ),
            is_other_thread: false,
            left_out: LeftOut::default(),
        }
    }

    pub fn begin(&mut self, thread: &ThreadInfo) {
        self.is_other_thread = !self.filter.has(thread);
    }

    /// Whether a call's end must be known.
    pub fn needs_end(&self) -> bool {
        self.filter.least_ns > 0 || self.filter.from_ns.is_some()
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
    pub fn why(&self, filter: &Filter) -> String {
        if self.seen == 0 {
            return "no such call was recorded to its end".to_string();
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
        format!(
            "{}: {}",
            several(
                self.seen,
                "the only call is left out",
                "calls are left out, all of them"
            ),
            parts.join(", ")
        )
    }
}
