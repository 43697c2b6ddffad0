//! Calls summed up by site.

use anyhow::Result;

use super::histogram::Histograms;
use crate::calls::{Ending, Frame, Machine, Sink, Style, site_of};
use crate::drive::{Segment, Worker};
use crate::names::Names;

/// What is known of a site. Fills a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Totals {
    /// Entries.
    pub calls: u64,
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
    /// Calls on the present stack.
    active: u32,
}

const NOTHING: Totals = Totals {
    calls: 0,
    total: 0,
    all: 0,
    own: 0,
    min: u64::MAX,
    max: 0,
    unfinished: 0,
    histogram: 0,
    active: 0,
};

/// Totals by site. Sites that the trace does not tell of share number 0.
pub struct Stats {
    pub sites: Vec<Totals>,
    pub histograms: Histograms,
}

impl Stats {
    pub fn new(sites: usize) -> Stats {
        Stats {
            sites: vec![NOTHING; sites.max(1)],
            histograms: Histograms::default(),
        }
    }

    /// The totals by function.
    pub fn by_function(workers: &[Stats], names: &Names) -> Stats {
        let mut sum = Stats::new(names.functions().len());
        for worker in workers {
            for (site, from) in (0..)
                .zip(&worker.sites)
                .filter(|(_, from)| from.calls > 0 || from.unfinished > 0)
            {
                let to = &mut sum.sites[names.number(site) as usize];
                to.calls += from.calls;
                to.total = to.total.saturating_add(from.total);
                to.all = to.all.saturating_add(from.all);
                to.own = to.own.saturating_add(from.own);
                to.min = to.min.min(from.min);
                to.max = to.max.max(from.max);
                to.unfinished += from.unfinished;
                sum.histograms
                    .merge(&mut to.histogram, &worker.histograms, from.histogram);
            }
        }
        sum
    }
}

#[inline(always)]
fn site(sites: &mut [Totals], site: u32) -> &mut Totals {
    let known = (site as usize) < sites.len();
    &mut sites[if known { site as usize } else { 0 }]
}

impl Sink for Stats {
    #[inline(always)]
    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        if let Some(frame) = frames.last() {
            let totals = site(&mut self.sites, frame.site());
            totals.calls += 1;
            totals.active = totals
                .active
                .wrapping_add(u32::from(frame.style() != Style::Only));
        }
        0
    }

    #[inline(always)]
    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        let totals = site(&mut self.sites, frame.site());
        let ticks = ending.clock.saturating_sub(frame.clock);
        totals.all = totals.all.saturating_add(ticks);
        totals.own = totals.own.saturating_add(ticks.saturating_sub(frame.child));
        totals.min = totals.min.min(ticks);
        totals.max = totals.max.max(ticks);
        totals.active = totals.active.wrapping_sub(1);
        if totals.active == 0 {
            totals.total = totals.total.saturating_add(ticks);
        }
        self.histograms.add(&mut totals.histogram, ticks);
    }

    fn lose(&mut self, frame: &Frame, _clock: u64, counted: bool) {
        let totals = site(&mut self.sites, frame.site());
        totals.unfinished += 1;
        totals.active = totals.active.wrapping_sub(u32::from(counted));
    }

    fn stray(&mut self, key: u32, _ending: Ending) {
        site(&mut self.sites, site_of(key)).unfinished += 1;
    }

    fn aside(&mut self, frames: &[Frame]) {
        for frame in frames.iter().filter(|frame| frame.style() != Style::Only) {
            let totals = site(&mut self.sites, frame.site());
            totals.active = totals.active.wrapping_sub(1);
        }
    }

    fn resume(&mut self, frames: &[Frame]) {
        for frame in frames.iter().filter(|frame| frame.style() != Style::Only) {
            let totals = site(&mut self.sites, frame.site());
            totals.active = totals.active.wrapping_add(1);
        }
    }
}

impl Worker for Stats {
    fn begin(&mut self, _segment: &Segment, machine: &Machine) {
        for frame in machine
            .counted()
            .filter(|frame| frame.style() != Style::Only)
        {
            let totals = site(&mut self.sites, frame.site());
            totals.active = totals.active.wrapping_add(1);
        }
    }

    fn end(&mut self, _segment: &Segment, machine: &Machine) -> Result<()> {
        for frame in machine
            .counted()
            .filter(|frame| frame.style() != Style::Only)
        {
            let totals = site(&mut self.sites, frame.site());
            totals.active = totals.active.wrapping_sub(1);
        }
        Ok(())
    }
}
