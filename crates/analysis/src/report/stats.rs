//! Calls summed up by site.

use anyhow::Result;

use super::histogram::{Histograms, Together};
use crate::calls::{Ending, Frame, Plain, RUN, Sink, Style};
use crate::drive::{Drive, Worker};
use crate::names::Names;
use crate::waits::InCall;
use nopal_trace::{ThreadInfo, Trace};

/// The sums of a site's calls, finished and unfinished. Fills a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Totals {
    /// Ticks in the outermost calls, and in all calls alone. Calls whose entry or exit is not known count as far as
    /// known.
    pub total: u64,
    pub own: u64,
    /// Ticks in all calls whose entry and exit are known; so are `min` and `max`.
    pub all: u64,
    pub min: u64,
    pub max: u64,
    /// `total` when the first call was counted in the present period.
    before: u64,
    /// The number of that period.
    period: u32,
    /// Calls that did not end, and those that began before tracing.
    pub unfinished: u32,
    /// It also tells how many calls ended.
    pub histogram: u32,
    /// `total` and `own` may be longer.
    pub total_is_least: bool,
    pub own_is_least: bool,
}

impl Default for Totals {
    fn default() -> Totals {
        Totals {
            total: 0,
            all: 0,
            own: 0,
            min: u64::MAX,
            max: 0,
            before: 0,
            period: 0,
            unfinished: 0,
            histogram: 0,
            total_is_least: false,
            own_is_least: false,
        }
    }
}

impl Totals {
    #[inline(always)]
    fn keep(&mut self, period: u32) {
        if self.period != period {
            self.period = period;
            self.before = self.total;
        }
    }
}

/// The fields that every entry and exit changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Live {
    /// Entries.
    calls: u64,
    /// Timed calls on the present stack.
    active: u64,
}

/// A call that ended in a run.
#[derive(Clone, Copy, Default)]
struct Ended {
    site: u32,
    outermost: bool,
    ticks: u64,
    own: u64,
}

/// Calls by site. Sites that the trace does not describe share number 0.
pub struct Stats {
    live: Vec<Live>,
    totals: Vec<Totals>,
    histograms: Histograms,
    ended: Box<[Ended; RUN + 1]>,
    ended_count: usize,
    /// The number of the period since which records are complete: each thread and each gap begins one.
    period: u32,
    /// The waits of calls, by site. Empty if none are known.
    waited: Vec<InCall>,
    /// Calls that were left out at recording, by site. Empty if there are none.
    short: Vec<u64>,
}

impl Stats {
    pub fn new(sites: usize) -> Stats {
        let sites = sites.max(1);
        Stats {
            live: vec![Live::default(); sites],
            totals: vec![Totals::default(); sites],
            histograms: Histograms::default(),
            ended: Box::new([Ended::default(); RUN + 1]),
            ended_count: 0,
            period: 0,
            waited: Vec::new(),
            short: Vec::new(),
        }
    }

    /// The calls of a trace, of each worker.
    pub fn of(trace: &Trace, names: &Names, drive: &Drive) -> Result<Vec<Stats>> {
        let mut workers: Vec<Stats> = (0..drive.workers.max(1))
            .map(|_| Stats::new(names.sites()))
            .collect();
        drive.run(trace, &mut workers)?;
        Ok(workers)
    }

    #[inline(always)]
    fn place(&self, site: u32) -> usize {
        let site = site as usize;
        if site < self.live.len() { site } else { 0 }
    }

    #[inline(always)]
    fn count(&mut self, call: Ended) {
        let totals = &mut self.totals[call.site as usize];
        totals.keep(self.period);
        totals.all = totals.all.saturating_add(call.ticks);
        totals.own = totals.own.saturating_add(call.own);
        totals.min = totals.min.min(call.ticks);
        totals.max = totals.max.max(call.ticks);
        totals.total = totals
            .total
            .saturating_add(if call.outermost { call.ticks } else { 0 });
        self.histograms.add(&mut totals.histogram, call.ticks);
    }

    /// Counts the known part of a call's self time.
    fn count_least(&mut self, frame: &Frame, clock: u64) -> (&mut Totals, u64) {
        let at = self.place(frame.site());
        let totals = &mut self.totals[at];
        let ticks = clock.saturating_sub(frame.clock);
        totals.keep(self.period);
        totals.unfinished = totals.unfinished.saturating_add(1);
        totals.own = totals.own.saturating_add(ticks.saturating_sub(frame.child));
        totals.own_is_least = true;
        (totals, ticks)
    }

    fn add_active<'a>(&mut self, frames: impl Iterator<Item = &'a Frame>, change: u64) {
        for frame in frames.filter(|frame| frame.style() != Style::Only) {
            let at = self.place(frame.site());
            self.live[at].active = self.live[at].active.wrapping_add(change);
        }
    }

    /// The totals by function.
    pub fn by_function<'a>(workers: &'a [Stats], names: &Names) -> Vec<Sum<'a>> {
        let mut sums = vec![Sum::default(); names.functions().len()];
        for worker in workers {
            for (site, (live, from)) in (0..).zip(worker.live.iter().zip(&worker.totals)) {
                let short = worker.short.get(site as usize).copied().unwrap_or(0);
                if live.calls == 0 && from.unfinished == 0 && short == 0 {
                    continue;
                }
                let sum = &mut sums[names.number(site) as usize];
                sum.calls += live.calls;
                sum.short = sum.short.saturating_add(short);
                let to = &mut sum.totals;
                to.total = to.total.saturating_add(from.total);
                to.all = to.all.saturating_add(from.all);
                to.own = to.own.saturating_add(from.own);
                to.min = to.min.min(from.min);
                to.max = to.max.max(from.max);
                to.unfinished = to.unfinished.saturating_add(from.unfinished);
                to.total_is_least |= from.total_is_least;
                to.own_is_least |= from.own_is_least;
                sum.durations.add(&worker.histograms, from.histogram);
                sum.waited += worker
                    .waited
                    .get(site as usize)
                    .copied()
                    .unwrap_or_default();
            }
        }
        sums
    }
}

/// The calls of a function. `durations` has the histograms, not `totals`.
#[derive(Clone, Default)]
pub struct Sum<'a> {
    pub calls: u64,
    /// Other calls, which were left out at recording.
    pub short: u64,
    pub totals: Totals,
    pub durations: Together<'a>,
    /// In the outermost calls, and in all calls alone.
    pub waited: InCall,
}

const LESS: u64 = u64::MAX;

impl Sink for Stats {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        let Plain {
            site,
            exit,
            ticks,
            own,
            ..
        } = call;
        let at = self.place(site);
        let live = &mut self.live[at];
        live.calls += 1 - exit;
        live.active = live.active.wrapping_add(1 - exit).wrapping_sub(exit);
        let outermost = live.active == 0;
        self.ended[self.ended_count.min(RUN)] = Ended {
            site: at as u32,
            outermost,
            ticks,
            own,
        };
        self.ended_count += exit as usize;
        0
    }

    fn end_run(&mut self) {
        for at in 0..self.ended_count.min(RUN) {
            self.count(self.ended[at]);
        }
        self.ended_count = 0;
    }

    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        if let Some(frame) = frames.last() {
            let at = self.place(frame.site());
            self.live[at].calls += 1;
            self.add_active(std::iter::once(frame), 1);
        }
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.add_active(std::iter::once(frame), LESS);
        let at = self.place(frame.site());
        let ticks = ending.clock.saturating_sub(frame.clock);
        let (outermost, own) = (self.live[at].active == 0, ticks.saturating_sub(frame.child));
        self.count(Ended {
            site: at as u32,
            outermost,
            ticks,
            own,
        });
        self.totals[at].own_is_least |= frame.is_bounded();
    }

    fn lose(&mut self, frame: &Frame, clock: u64, counted: bool) {
        if counted {
            self.add_active(std::iter::once(frame), LESS);
        }
        let outermost = self.live[self.place(frame.site())].active == 0;
        let (totals, ticks) = self.count_least(frame, clock);
        if outermost {
            totals.total = totals.total.saturating_add(ticks);
            totals.total_is_least = true;
        }
    }

    fn dismiss(&mut self, frame: &Frame, counted: bool) {
        let at = self.place(frame.site());
        self.live[at].calls = self.live[at].calls.wrapping_sub(1);
        if counted {
            self.add_active(std::iter::once(frame), LESS);
        }
    }

    /// All calls of the function since then were in this one.
    fn stray(&mut self, frame: &Frame, ending: Ending) {
        let (totals, ticks) = self.count_least(frame, ending.clock);
        totals.total = totals.total.max(totals.before.saturating_add(ticks));
        totals.total_is_least = true;
    }

    fn waited(&mut self, frame: &Frame, _clock: u64, waited: InCall) {
        if self.waited.is_empty() {
            self.waited = vec![InCall::default(); self.live.len()];
        }
        let at = self.place(frame.site());
        self.waited[at].own += waited.own;
        if self.live[at].active == 0 {
            self.waited[at].total += waited.total;
        }
    }

    fn short(&mut self, _clock: u64, site: u32, calls: u32) {
        if self.short.is_empty() {
            self.short = vec![0; self.live.len()];
        }
        let at = self.place(site);
        self.short[at] = self.short[at].saturating_add(calls.into());
    }

    fn missing(&mut self, _clock: u64, _ticks: u64) {
        self.period = self.period.wrapping_add(1);
    }

    fn aside(&mut self, frames: &[Frame]) {
        self.add_active(frames.iter(), LESS);
    }

    fn resume(&mut self, frames: &[Frame]) {
        self.add_active(frames.iter(), 1);
    }
}

impl Worker for Stats {
    fn takes_waits(&self) -> bool {
        true
    }

    fn begin(&mut self, _stream: usize, _thread: &ThreadInfo) {
        self.period = self.period.wrapping_add(1);
    }
}
