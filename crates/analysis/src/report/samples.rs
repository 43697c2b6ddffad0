//! Calls of counted functions that were recorded at random: from these the times of the counted ones are estimated.

use std::collections::BTreeMap;

use anyhow::Result;
use nopal_trace::{SiteStates, Trace};

use super::histogram::{Histograms, Together};
use crate::calls::{Ending, Frame, Sink};
use crate::drive::{Drive, Worker};
use crate::names::Names;

/// Fewer sampled calls show too little of their error.
const LEAST: u64 = 30;
/// One in so many sampled calls may be without an end.
const ENDED: u64 = 100;

/// What a sampled call takes more than a timed one at most, in nanoseconds: between calls that are counted, the code that
/// records is in no cache, and its jumps are not foreseen. Measured: 30 to 90.
const COLD_NS: u64 = 100;
/// Of what samples take more than timed calls did, the part that may come from other calls having been made then; and the
/// least that may, of all that samples could take more.
const UNSURE: f64 = 1.0 / 3.0;
const LEAST_UNSURE: f64 = 1.0 / 20.0;
/// The part of calls, at either end, that other work of the machine may have disturbed.
const DISTURBED: f64 = 0.02;

/// The times of a function's sampled calls, in ticks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    calls: u64,
    /// The sums of the times, and of their squares, in the calls and in them alone.
    total: [f64; 2],
    own: [f64; 2],
    unfinished: u64,
    /// How many of its calls had each own time: of those that were sampled, and of those that were timed.
    times: [BTreeMap<u64, u64>; 2],
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
    /// What a sampled call takes more than a timed one, at most.
    cold: f64,
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
            cold: trace.clocks().ticks(COLD_NS) as f64,
        })
    }
}

impl Ticks {
    fn of(calls: u64, samples: &Sampled, [sum, squares]: [f64; 2], recording: Recording) -> Ticks {
        let (calls, sampled) = (calls as f64, samples.calls as f64);
        let longer = samples.longer(recording.cold);
        let recorded = recording.within + longer.sum;
        let unknown = recording.call.hypot(longer.error);
        let mean = sum / sampled;
        let variance = (squares - sum * mean).max(0.0) / (sampled - 1.0);
        Ticks {
            sum: calls * (mean - recorded).max(0.0),
            // The cost of recording differs from what was measured, by no more than itself.
            error: calls * (variance / sampled).sqrt().hypot(unknown),
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
        for (to, from) in self.times.iter_mut().zip(&other.times) {
            for (ticks, calls) in from {
                *to.entry(*ticks).or_default() += calls;
            }
        }
        self.is_recursive |= other.is_recursive;
        for (to, from) in [(&mut self.total, other.total), (&mut self.own, other.own)] {
            to[0] += from[0];
            to[1] += from[1];
        }
    }

    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// What a sample takes more than a timed call. Not known where too few were timed, or where these were other calls:
    /// then it may be anything from nothing to all that is possible.
    fn longer(&self, possible: f64) -> Ticks {
        let [sampled, timed] = self.times.each_ref().map(typical);
        let both = sampled.zip(timed);
        let longer = both.map(|(sampled, timed)| {
            let longer = sampled.sum - timed.sum;
            let unsure = (longer.abs() * UNSURE).max(possible * LEAST_UNSURE);
            Ticks {
                sum: longer.max(0.0),
                error: unsure.hypot(timed.error),
            }
        });
        let is_near = |both: &(Ticks, Ticks)| (both.0.sum - both.1.sum).abs() <= possible;
        longer
            .filter(|_| both.as_ref().is_some_and(is_near))
            .unwrap_or(Ticks {
                sum: possible / 2.0,
                error: possible / 2.0,
            })
    }

    /// The times of counted calls, in the calls and in them alone, without the cost of recording, which they do not have.
    /// None of a function that calls itself, since a counted call in another one would count twice.
    pub fn estimate(&self, counted: u64, recording: Recording) -> Option<[Ticks; 2]> {
        let is_enough = self.calls >= LEAST && self.unfinished <= self.calls / ENDED;
        (counted > 0 && is_enough && !self.is_recursive)
            .then(|| [self.total, self.own].map(|sums| Ticks::of(counted, self, sums, recording)))
    }
}

/// The mean of all but the longest and the shortest calls, and its standard error. None of too few.
fn typical(times: &BTreeMap<u64, u64>) -> Option<Ticks> {
    let all: u64 = times.values().sum();
    let disturbed = (all as f64 * DISTURBED) as u64;
    let within = disturbed..all - disturbed;
    let (mut before, mut count, mut sum, mut squares) = (0, 0.0, 0.0, 0.0);
    for (ticks, calls) in times {
        let from = before.max(within.start);
        before += calls;
        let calls = before.min(within.end).saturating_sub(from) as f64;
        let ticks = *ticks as f64;
        count += calls;
        sum += ticks * calls;
        squares += ticks * ticks * calls;
    }
    let mean = sum / count;
    let variance = (squares / count - mean * mean).max(0.0);
    (all >= LEAST).then(|| Ticks {
        sum: mean,
        error: (variance / count).sqrt(),
    })
}

struct Sampler<'a> {
    states: &'a SiteStates,
    names: &'a Names,
    /// By site, the place among `sums` where calls of it were sampled, plus 1.
    places: &'a [u32],
    sums: Vec<Sampled>,
    histograms: Histograms,
    /// Of each, the histograms of own times of samples, and of timed calls.
    numbers: Vec<[u32; 2]>,
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
        histograms: Histograms::default(),
        numbers: vec![[0; 2]; sites.len()],
    };
    let mut workers: Vec<Sampler> = (0..drive.workers.max(1)).map(|_| sampler()).collect();
    drive.run(trace, &mut workers)?;
    let mut functions = vec![Sampled::default(); names.functions().len()];
    for worker in &mut workers {
        for (sum, numbers) in worker.sums.iter_mut().zip(&worker.numbers) {
            sum.times = numbers.map(|number| {
                let mut histogram = Together::default();
                histogram.add(&worker.histograms, number);
                histogram
                    .buckets()
                    .filter(|(_, calls)| *calls > 0)
                    .collect()
            });
        }
        for (site, sum) in sites.iter().zip(&worker.sums) {
            functions[names.number(*site) as usize].merge(sum);
        }
    }
    Ok(functions)
}

impl Sampler<'_> {
    /// The place among sums, of a function that is sampled at any time.
    fn place_of(&self, frame: &Frame) -> Option<usize> {
        let place = *self.places.get(frame.site() as usize)?;
        Some(place.checked_sub(1)? as usize)
    }

    fn is_sample(&self, frame: &Frame) -> bool {
        self.states.is_sample(frame.site(), frame.clock)
    }

    fn sum_of(&mut self, frame: &Frame) -> Option<&mut Sampled> {
        let place = self.place_of(frame)?;
        self.is_sample(frame).then(|| &mut self.sums[place])
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
        let Some(place) = self.place_of(frame) else {
            return;
        };
        let ticks = ending.clock.saturating_sub(frame.clock);
        let own = ticks.saturating_sub(frame.child);
        let is_sample = self.is_sample(frame);
        if is_sample {
            self.sums[place].add(ticks, own);
        }
        let number = &mut self.numbers[place][usize::from(!is_sample)];
        self.histograms.add(number, own);
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
            cold: 0.0,
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
            cold: 42.0,
        };
        let [_, own] = sampled.estimate(1000, recording).unwrap();
        assert_eq!((own.sum, own.error), (21_000.0, 29_000.0));
        sampled.is_recursive = true;
        assert_eq!(sampled.estimate(1000, nothing), None);
    }

    #[test]
    fn what_samples_take_more_is_known_where_the_same_calls_were_timed() {
        let longer = |sampled: &[(u64, u64)], timed: &[(u64, u64)]| {
            let times = [sampled, timed].map(|times| times.iter().copied().collect());
            let Ticks { sum, error } = Sampled {
                times,
                ..Sampled::default()
            }
            .longer(100.0);
            (sum.round() as i64, error.round() as i64)
        };
        let unknown = (50, 50);
        assert_eq!(longer(&[(230, 1000)], &[(200, 1000)]), (30, 10));
        // Other work came between.
        assert_eq!(
            longer(&[(230, 990), (1 << 30, 10)], &[(200, 1000), (1 << 40, 5)]),
            (30, 10)
        );
        assert_eq!(longer(&[(200, 1000)], &[(203, 1000)]), (0, 5));
        assert_eq!(longer(&[(230, 1000)], &[]), unknown);
        assert_eq!(longer(&[(230, 1000)], &[(200, LEAST - 1)]), unknown);
        // These were other calls.
        assert_eq!(longer(&[(230, 1000)], &[(2000, 1000)]), unknown);
        assert_eq!(longer(&[(2300, 1000)], &[(200, 1000)]), unknown);
    }
}
