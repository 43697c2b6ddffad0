//! Calls of counted functions that were recorded at random: from these the times of the counted ones are estimated.

use anyhow::Result;
use nopal_trace::{SiteStates, Trace};

use crate::calls::{Ending, Frame, Sink};
use crate::drive::{Drive, Worker};
use crate::names::Names;

/// Fewer sampled calls show too little of their error.
const LEAST: u64 = 30;
/// One in so many sampled calls may be without an end.
const ENDED: u64 = 100;

/// The times of a function's sampled calls, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampled {
    calls: u64,
    /// The sums of the times, and of their squares, in the calls and in them alone.
    total: [f64; 2],
    own: [f64; 2],
    unfinished: u64,
    /// One was made in another recorded call of the function.
    is_recursive: bool,
}

/// An estimate and its standard error, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticks {
    pub sum: f64,
    pub error: f64,
}

/// The cost of recording a call, in ticks: in all, and the part that is in the call's own time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recording {
    call: f64,
    within: f64,
}

impl Recording {
    /// None where it is not known.
    pub fn of(trace: &Trace, drive: &Drive) -> Option<Recording> {
        let cost = trace.cost()?;
        let ticks = |thousandths: u64| thousandths as f64 / 1000.0;
        Some(Recording {
            call: ticks(cost.call),
            // Net times are without it.
            within: drive.net.map_or(ticks(cost.within), |_| 0.0),
        })
    }
}

impl Ticks {
    fn of(calls: u64, sampled: u64, [sum, squares]: [f64; 2], recording: Recording) -> Ticks {
        let (calls, sampled) = (calls as f64, sampled as f64);
        let mean = sum / sampled;
        let variance = (squares - sum * mean).max(0.0) / (sampled - 1.0);
        Ticks {
            sum: calls * (mean - recording.within).max(0.0),
            // The cost of recording differs from what was measured, by no more than itself.
            error: calls * (variance / sampled).sqrt().hypot(recording.call),
        }
    }
}

impl Sampled {
    fn add(&mut self, total: u64, own: u64) {
        self.calls += 1;
        for (sums, ticks) in [(&mut self.total, total), (&mut self.own, own)] {
            let ticks = ticks as f64;
            sums[0] += ticks;
            sums[1] += ticks * ticks;
        }
    }

    fn merge(&mut self, other: &Sampled) {
        self.calls += other.calls;
        self.unfinished += other.unfinished;
        self.is_recursive |= other.is_recursive;
        for (to, from) in [(&mut self.total, other.total), (&mut self.own, other.own)] {
            to[0] += from[0];
            to[1] += from[1];
        }
    }

    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The times of counted calls, in the calls and in them alone, without the cost of recording, which they do not have.
    /// None of a function that calls itself, since a counted call in another one would count twice.
    pub fn estimate(&self, counted: u64, recording: Recording) -> Option<[Ticks; 2]> {
        let is_enough = self.calls >= LEAST && self.unfinished <= self.calls / ENDED;
        (counted > 0 && is_enough && !self.is_recursive).then(|| {
            [self.total, self.own].map(|sums| Ticks::of(counted, self.calls, sums, recording))
        })
    }
}

struct Sampler<'a> {
    states: &'a SiteStates,
    names: &'a Names,
    /// By site, the place among `sums` where calls of it were sampled, plus 1.
    places: &'a [u32],
    sums: Vec<Sampled>,
}

/// The samples of each function, by its number; empty where nothing was sampled.
pub fn sampled(trace: &Trace, names: &Names, drive: &Drive) -> Result<Vec<Sampled>> {
    let states = SiteStates::of(trace);
    let sites: Vec<u32> = states.sampled_sites().collect();
    // Which calls were left out since they were short is not known of samples.
    if sites.is_empty() || trace.session().least_duration_ns > 0 {
        return Ok(Vec::new());
    }
    let mut places = vec![0; names.sites()];
    for (place, site) in (1..).zip(&sites) {
        if let Some(at) = places.get_mut(*site as usize) {
            *at = place;
        }
    }
    let sampler = || Sampler {
        states: &states,
        names,
        places: &places,
        sums: vec![Sampled::default(); sites.len()],
    };
    let mut workers: Vec<Sampler> = (0..drive.workers.max(1)).map(|_| sampler()).collect();
    drive.run(trace, &mut workers)?;
    let mut functions = vec![Sampled::default(); names.functions().len()];
    for worker in &workers {
        for (site, sum) in sites.iter().zip(&worker.sums) {
            functions[names.number(*site) as usize].merge(sum);
        }
    }
    Ok(functions)
}

impl Sampler<'_> {
    fn sum_of(&mut self, frame: &Frame) -> Option<&mut Sampled> {
        let place = *self.places.get(frame.site() as usize)?;
        let place = place.checked_sub(1)? as usize;
        let is_sample = self.states.is_sample(frame.site(), frame.clock);
        is_sample.then(|| &mut self.sums[place])
    }
}

impl Sink for Sampler<'_> {
    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let Some((frame, callers)) = frames.split_last() else {
            return 0;
        };
        let names = self.names;
        if let Some(sum) = self.sum_of(frame) {
            let function = names.number(frame.site());
            sum.is_recursive |= callers
                .iter()
                .any(|caller| names.number(caller.site()) == function);
        }
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        if let Some(sum) = self.sum_of(frame) {
            let ticks = ending.clock.saturating_sub(frame.clock);
            sum.add(ticks, ticks.saturating_sub(frame.child));
        }
    }

    fn lose(&mut self, frame: &Frame, _clock: u64, _counted: bool) {
        if let Some(sum) = self.sum_of(frame) {
            sum.unfinished += 1;
        }
    }

    fn stray(&mut self, _frame: &Frame, _ending: Ending) {}
}

impl Worker for Sampler<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_calls_take_as_long_as_sampled_ones_with_an_error() {
        let nothing = Recording {
            call: 0.0,
            within: 0.0,
        };
        let mut sampled = Sampled::default();
        for call in 0..LEAST {
            assert_eq!(sampled.estimate(1000, nothing), None);
            sampled.add(90 + call % 2 * 20, 50);
        }
        let [total, own] = sampled.estimate(1000, nothing).unwrap();
        assert!((total.sum - 100_000.0).abs() < 1e-6, "{total:?}");
        // The standard deviation is 10, and a little more as it is of a sample.
        let error = 1000.0 * 10.0 / (LEAST as f64 - 1.0).sqrt();
        assert!((total.error - error).abs() < 1.0, "{total:?}");
        assert_eq!((own.sum, own.error), (50_000.0, 0.0));
        assert_eq!(sampled.estimate(0, nothing), None);
        // Counted calls do not have the cost of recording, which is not known well.
        let recording = Recording {
            call: 20.0,
            within: 8.0,
        };
        let [_, own] = sampled.estimate(1000, recording).unwrap();
        assert_eq!((own.sum, own.error), (42_000.0, 20_000.0));
        sampled.is_recursive = true;
        assert_eq!(sampled.estimate(1000, nothing), None);
    }
}
