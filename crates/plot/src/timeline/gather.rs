//! Gathers calls in two passes: one selects the functions with rows, one fills the rows.

use nopal_analysis::calls::{Ending, Frame, Plain, Sink, Style};
use nopal_analysis::drive::{Times, Worker};
use nopal_analysis::filter::{Filter, LeftOut, Sieve};
use nopal_analysis::names::Names;
use nopal_trace::{ThreadInfo, Trace};

use super::{COLUMNS, Extent};

/// The calls of one function.
#[derive(Clone, Copy)]
pub struct Function {
    pub calls: u64,
    pub first: u64,
    pub longest: u64,
}

const NEVER: Function = Function {
    calls: 0,
    first: u64::MAX,
    longest: 0,
};

pub struct Found {
    /// By number.
    pub functions: Vec<Function>,
    /// By thread: the number of calls.
    pub threads: Vec<u64>,
    pub begin: u64,
    pub end: u64,
    pub unfinished: u64,
}

impl Found {
    pub fn add(&mut self, other: &Found) {
        for (sum, function) in self.functions.iter_mut().zip(&other.functions) {
            sum.calls += function.calls;
            sum.first = sum.first.min(function.first);
            sum.longest = sum.longest.max(function.longest);
        }
        for (sum, calls) in self.threads.iter_mut().zip(&other.threads) {
            *sum += calls;
        }
        self.begin = self.begin.min(other.begin);
        self.end = self.end.max(other.end);
        self.unfinished += other.unfinished;
    }
}

/// Takes the calls of threads, one thread after the other, as wholes.
pub trait WholeCalls: Send {
    /// A thread begins; `stream` is its place in the trace.
    fn begin(&mut self, stream: usize);
    /// A call of a site that ended at `end`, or was last known to be open then.
    fn call(&mut self, site: u32, end: u64, ticks: u64, is_finished: bool);
}

/// Passes calls on as they end, and selects none by time.
pub struct Each<T>(pub T);

impl<T: WholeCalls> Sink for Each<T> {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        if call.exit != 0 {
            self.0.call(call.site, call.clock, call.ticks, true);
        }
        0
    }

    fn enter(&mut self, _frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        let ticks = ending.clock.saturating_sub(frame.clock);
        self.0.call(frame.site(), ending.clock, ticks, true);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        if frame.style() != Style::Only {
            let ticks = clock.saturating_sub(frame.clock);
            self.0.call(frame.site(), clock, ticks, false);
        }
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.lose(frame, ending.clock, false);
    }
}

impl<T: WholeCalls> Worker for Each<T> {
    fn times(&self) -> Times {
        Times::Own
    }

    fn begin(&mut self, stream: usize, _thread: &ThreadInfo) {
        self.0.begin(stream);
    }
}

/// Finds the functions that were called, their first calls and their longest ones.
pub struct Surveyor<'a> {
    /// By site: the number of the function; the last function is a dummy.
    by_site: Vec<u32>,
    sieve: Sieve<'a>,
    stream: usize,
    found: Found,
}

impl<'a> Surveyor<'a> {
    pub fn new(trace: &'a Trace, names: &Names, filter: &'a Filter) -> Surveyor<'a> {
        let number = |site| names.number(site);
        Surveyor {
            by_site: (0..names.sites() as u32).map(number).collect(),
            sieve: Sieve::new(filter, trace),
            stream: 0,
            found: Found {
                functions: vec![NEVER; names.functions().len()],
                threads: vec![0; trace.threads().len()],
                begin: u64::MAX,
                end: 0,
                unfinished: 0,
            },
        }
    }

    pub fn left_out(&self) -> &LeftOut {
        &self.sieve.left_out
    }

    pub fn into_found(self) -> Found {
        self.found
    }
}

impl WholeCalls for Surveyor<'_> {
    fn begin(&mut self, stream: usize) {
        self.stream = stream;
        self.sieve.begin(stream);
    }

    #[inline(always)]
    fn call(&mut self, site: u32, end: u64, ticks: u64, is_finished: bool) {
        let number = self.by_site.get(site as usize).copied();
        let number = number.unwrap_or(u32::MAX) as usize;
        let begin = end.saturating_sub(ticks);
        if number >= self.found.functions.len() || !self.sieve.passes(begin, ticks) {
            return;
        }
        let function = &mut self.found.functions[number];
        function.calls += 1;
        function.first = function.first.min(begin);
        function.longest = function.longest.max(ticks);
        self.found.threads[self.stream] += 1;
        self.found.begin = self.found.begin.min(begin);
        self.found.end = self.found.end.max(end);
        self.found.unfinished += u64::from(!is_finished);
    }
}

/// For each row and lane, the number of calls that begin in each column minus those that end there.
pub struct Rows {
    lanes: usize,
    begin: u64,
    end: u64,
    scale: f64,
    changes: Vec<i64>,
}

/// One more than columns, for the ends of calls that reach the right edge.
const PLACES: usize = COLUMNS + 1;

impl Rows {
    pub fn new(rows: usize, lanes: usize, extent: &Extent) -> Rows {
        let span = extent.end.saturating_sub(extent.begin).max(1);
        Rows {
            lanes,
            begin: extent.begin,
            end: extent.end,
            scale: COLUMNS as f64 / span as f64,
            changes: vec![0; rows * lanes * PLACES],
        }
    }

    #[inline(always)]
    fn paint(&mut self, row: usize, lane: usize, begin: u64, end: u64) {
        if end < self.begin || begin > self.end {
            return;
        }
        let column = |clock: u64| {
            let ticks = clock.saturating_sub(self.begin);
            ((ticks as f64 * self.scale) as usize).min(COLUMNS - 1)
        };
        let (from, to) = (column(begin), column(end) + 1);
        let start = (row * self.lanes + lane) * PLACES;
        if let Some(places) = self.changes.get_mut(start..start + PLACES) {
            places[from] += 1;
            places[to] -= 1;
        }
    }

    pub fn add(&mut self, other: &Rows) {
        for (sum, change) in self.changes.iter_mut().zip(&other.changes) {
            *sum += change;
        }
    }

    /// By column, whether a call was active.
    pub fn covered(&self, row: usize, lane: usize) -> Vec<bool> {
        let start = (row * self.lanes + lane) * PLACES;
        let mut alive = 0;
        self.changes[start..start + COLUMNS]
            .iter()
            .map(|change| {
                alive += change;
                alive > 0
            })
            .collect()
    }
}

/// Fills the rows.
pub struct Painter<'a> {
    by_site: &'a [u32],
    lanes: &'a [u32],
    lane: usize,
    sieve: Sieve<'a>,
    rows: Rows,
}

impl<'a> Painter<'a> {
    pub fn new(
        trace: &'a Trace,
        filter: &'a Filter,
        by_site: &'a [u32],
        lanes: &'a [u32],
        rows: Rows,
    ) -> Painter<'a> {
        Painter {
            by_site,
            lanes,
            lane: 0,
            sieve: Sieve::new(filter, trace),
            rows,
        }
    }

    pub fn into_rows(self) -> Rows {
        self.rows
    }
}

impl WholeCalls for Painter<'_> {
    fn begin(&mut self, stream: usize) {
        self.lane = self.lanes.get(stream).copied().unwrap_or(0) as usize;
        self.sieve.begin(stream);
    }

    #[inline(always)]
    fn call(&mut self, site: u32, end: u64, ticks: u64, _is_finished: bool) {
        let row = self.by_site.get(site as usize).copied();
        let row = row.unwrap_or(u32::MAX);
        let begin = end.saturating_sub(ticks);
        if row != u32::MAX && self.sieve.passes(begin, ticks) {
            self.rows.paint(row as usize, self.lane, begin, end);
        }
    }
}
