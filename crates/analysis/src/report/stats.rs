//! Calls summed up by site.

use super::histogram::{Histograms, Together};
use crate::calls::{Ending, Frame, RUN, Sink, Style, site_of};
use crate::drive::Worker;
use crate::names::Names;

/// What is known of a site's calls that ended, and of those that did not. Fills a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Totals {
    /// Ticks in the outermost calls of those whose entry and exit are known.
    pub total: u64,
    /// Ticks in all of those.
    pub all: u64,
    pub own: u64,
    pub min: u64,
    pub max: u64,
    /// Calls that did not end, and those that began before tracing.
    pub unfinished: u64,
    /// Tells how many calls ended, too.
    pub histogram: u32,
}

impl Default for Totals {
    fn default() -> Totals {
        Totals {
            total: 0,
            all: 0,
            own: 0,
            min: u64::MAX,
            max: 0,
            unfinished: 0,
            histogram: 0,
        }
    }
}

/// What every entry and exit changes.
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

/// Calls by site. Sites that the trace does not tell of share number 0.
pub struct Stats {
    live: Vec<Live>,
    totals: Vec<Totals>,
    histograms: Histograms,
    ended: Box<[Ended; RUN + 1]>,
    ended_count: usize,
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
        }
    }

    #[inline(always)]
    fn place(&self, site: u32) -> usize {
        let site = site as usize;
        if site < self.live.len() { site } else { 0 }
    }

    #[inline(always)]
    fn count(&mut self, call: Ended) {
        let totals = &mut self.totals[call.site as usize];
        totals.all = totals.all.saturating_add(call.ticks);
        totals.own = totals.own.saturating_add(call.own);
        totals.min = totals.min.min(call.ticks);
        totals.max = totals.max.max(call.ticks);
        totals.total = totals
            .total
            .saturating_add(if call.outermost { call.ticks } else { 0 });
        self.histograms.add(&mut totals.histogram, call.ticks);
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
                if live.calls == 0 && from.unfinished == 0 {
                    continue;
                }
                let sum = &mut sums[names.number(site) as usize];
                sum.calls += live.calls;
                let to = &mut sum.totals;
                to.total = to.total.saturating_add(from.total);
                to.all = to.all.saturating_add(from.all);
                to.own = to.own.saturating_add(from.own);
                to.min = to.min.min(from.min);
                to.max = to.max.max(from.max);
                to.unfinished += from.unfinished;
                sum.durations.add(&worker.histograms, from.histogram);
            }
        }
        sums
    }
}

/// The calls of a function. `durations` has the histograms, not `totals`.
#[derive(Clone, Default)]
pub struct Sum<'a> {
    pub calls: u64,
    pub totals: Totals,
    pub durations: Together<'a>,
}

const LESS: u64 = u64::MAX;

impl Sink for Stats {
    const RUNS: bool = true;

    #[inline(always)]
    fn plain(&mut self, site: u32, exit: u64, _clock: u64, ticks: u64, own: u64) {
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
    }

    fn lose(&mut self, frame: &Frame, _clock: u64, counted: bool) {
        let at = self.place(frame.site());
        self.totals[at].unfinished += 1;
        if counted {
            self.add_active(std::iter::once(frame), LESS);
        }
    }

    fn stray(&mut self, key: u32, _ending: Ending) {
        let at = self.place(site_of(key));
        self.totals[at].unfinished += 1;
    }

    fn aside(&mut self, frames: &[Frame]) {
        self.add_active(frames.iter(), LESS);
    }

    fn resume(&mut self, frames: &[Frame]) {
        self.add_active(frames.iter(), 1);
    }
}

impl Worker for Stats {}
