//! The times in which the sites of a trace were not recorded, and the counts of their calls.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::note::{Note, SiteState};
use crate::trace::Trace;

/// The times, by the counter, in which sites were not timed, and the calls that were counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteStates {
    /// The last budget, in per cent; none if there never was one.
    pub percent: Option<f64>,
    /// In order. A state that had no end lasts until `u64::MAX`.
    untimed: BTreeMap<u32, Vec<(SiteState, RangeInclusive<u64>)>>,
    /// In order: the times in which all recorded calls of a counted site are samples.
    sampled: BTreeMap<u32, Vec<RangeInclusive<u64>>>,
    /// For each site and each memory that has its counters, the sums at moments, in order.
    counted: BTreeMap<u32, BTreeMap<u64, Vec<Sum>>>,
    /// The number of times that a site went from one state to another.
    pub changes: u64,
    /// Sites that began off or counted, as they were not timed when another session of the program ended.
    pub begun_untimed: u64,
}

/// Calls that are not in the records, and the time in which they were made.
#[derive(Clone, Debug, PartialEq)]
pub struct Unrecorded {
    pub time: RangeInclusive<u64>,
    pub calls: UnrecordedCalls,
}

#[derive(Clone, Debug, PartialEq)]
pub enum UnrecordedCalls {
    /// How many of each site were counted in the processes that share counters, in order of sites.
    Counted(Vec<(u32, u64)>),
    /// Those of these sites were not counted either, if there were any.
    Unknown(Vec<u32>),
}

/// The number of calls that had been counted at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sum {
    counter: u64,
    calls: u64,
}

impl SiteStates {
    pub fn of(trace: &Trace) -> SiteStates {
        SiteStates::of_notes(trace.notes())
    }

    fn of_notes(notes: &[Note]) -> SiteStates {
        let mut states = SiteStates::default();
        for note in notes {
            match note {
                Note::Budget { percent, .. } => states.percent = percent.or(states.percent),
                Note::State {
                    counter,
                    state,
                    sites,
                    kept,
                    sampled,
                } => {
                    if *kept {
                        states.begun_untimed += sites.len() as u64;
                    }
                    for site in sites {
                        states.change(*site, *state, *counter);
                        let is_sampled = *sampled && *state == SiteState::Counted;
                        states.sample(*site, is_sampled, *counter);
                    }
                }
                Note::Counted {
                    counter,
                    memory,
                    calls,
                } => {
                    for (site, calls) in calls {
                        states.count(*site, *memory, *counter, *calls);
                    }
                }
                _ => {}
            }
        }
        states
    }

    fn change(&mut self, site: u32, state: SiteState, counter: u64) {
        let times = self.untimed.entry(site).or_default();
        // The notes of a damaged trace may go back.
        let mut from = counter;
        match times.last_mut() {
            Some((last, time)) if *time.end() == u64::MAX => {
                if *last == state {
                    return;
                }
                from = counter.max(*time.start());
                *time = *time.start()..=from;
            }
            _ if state == SiteState::Timed => return,
            Some((_, time)) => from = counter.max(*time.end()),
            None => {}
        }
        if state != SiteState::Timed {
            times.push((state, from..=u64::MAX));
        }
        self.changes += 1;
    }

    fn sample(&mut self, site: u32, is_sampled: bool, counter: u64) {
        let times = self.sampled.entry(site).or_default();
        match (is_sampled, times.last_mut()) {
            (true, Some(last)) if *last.end() == u64::MAX => {}
            (true, last) => {
                let before = last.map_or(0, |last| *last.end());
                times.push(counter.max(before)..=u64::MAX);
            }
            (false, Some(last)) if *last.end() == u64::MAX => {
                // The notes of a damaged trace may go back.
                *last = *last.start()..=counter.max(*last.start());
            }
            (false, _) => {}
        }
    }

    fn count(&mut self, site: u32, memory: u64, counter: u64, calls: u64) {
        let of_site = self.counted.entry(site).or_default();
        let sums = of_site.entry(memory).or_default();
        let last = sums.last().copied().unwrap_or(Sum {
            counter: 0,
            calls: 0,
        });
        // The notes of a damaged trace may go back.
        sums.push(Sum {
            counter: counter.max(last.counter),
            calls: calls.max(last.calls),
        });
    }

    /// Ticks of a time in which a site was off.
    pub fn off(&self, site: u32, within: &RangeInclusive<u64>) -> u64 {
        self.ticks(site, SiteState::Off, within)
    }

    /// The same of a time in which its calls were counted.
    pub fn counted(&self, site: u32, within: &RangeInclusive<u64>) -> u64 {
        self.ticks(site, SiteState::Counted, within)
    }

    /// Whether any site was off or counted in a time.
    pub fn has_untimed(&self, within: &RangeInclusive<u64>) -> bool {
        let mut times = self.untimed.values().flatten();
        times.any(|(_, time)| time.start() < within.end() && within.start() < time.end())
    }

    fn ticks(&self, site: u32, state: SiteState, within: &RangeInclusive<u64>) -> u64 {
        let times = self.untimed.get(&site).into_iter().flatten();
        let times = times.filter(|(known, _)| *known == state);
        let ticks = times.map(|(_, time)| {
            let end = *time.end().min(within.end());
            end.saturating_sub(*time.start().max(within.start()))
        });
        ticks.fold(0, u64::saturating_add)
    }

    /// Calls of a site that were counted between two looks, of which the second was in this time.
    pub fn calls(&self, site: u32, within: &RangeInclusive<u64>) -> u64 {
        let memories = self.counted.get(&site).into_iter().flatten();
        let calls = memories.map(|(_, sums)| {
            let at = |end: usize| sums[..end].last().map_or(0, |sum| sum.calls);
            let before = sums.partition_point(|sum| sum.counter < *within.start());
            let until = sums.partition_point(|sum| sum.counter <= *within.end());
            at(until).saturating_sub(at(before))
        });
        calls.fold(0, u64::saturating_add)
    }

    /// The calls between each two looks at counters, and those in times in which sites were off; by the end of the time,
    /// which is `u64::MAX` where sites were off to the end.
    pub fn unrecorded(&self) -> Vec<Unrecorded> {
        let mut looks: BTreeMap<(u64, u64), Vec<(u32, u64)>> = BTreeMap::new();
        for (site, memories) in &self.counted {
            for (memory, sums) in memories {
                let mut before = 0;
                for sum in sums {
                    let calls = sum.calls - before;
                    before = sum.calls;
                    let look = looks.entry((*memory, sum.counter)).or_default();
                    look.extend((calls > 0).then_some((*site, calls)));
                }
            }
        }
        let mut all = Vec::new();
        let mut last: Option<(u64, u64)> = None;
        for ((memory, until), calls) in looks {
            let before = last.filter(|(of, _)| *of == memory).map(|(_, at)| at);
            last = Some((memory, until));
            let begins = calls.iter().filter_map(|(site, _)| {
                let mut times = self.untimed.get(site)?.iter();
                let first = times.find(|(state, _)| *state == SiteState::Counted)?;
                Some(*first.1.start())
            });
            let from = before.or(begins.min()).unwrap_or(0).min(until);
            if !calls.is_empty() {
                all.push(Unrecorded {
                    time: from..=until,
                    calls: UnrecordedCalls::Counted(calls),
                });
            }
        }
        let mut off: BTreeMap<(u64, u64), Vec<u32>> = BTreeMap::new();
        for (site, times) in &self.untimed {
            for (_, time) in times.iter().filter(|(state, _)| *state == SiteState::Off) {
                let of_time = off.entry((*time.start(), *time.end()));
                of_time.or_default().push(*site);
            }
        }
        all.extend(off.into_iter().map(|((from, until), sites)| Unrecorded {
            time: from..=until,
            calls: UnrecordedCalls::Unknown(sites),
        }));
        all.sort_by_key(|one| (*one.time.end(), *one.time.start()));
        all
    }

    /// The sites whose calls were sampled at any time.
    pub fn sampled_sites(&self) -> impl Iterator<Item = u32> {
        let sites = self.sampled.iter();
        sites
            .filter(|(_, times)| !times.is_empty())
            .map(|(site, _)| *site)
    }

    /// Whether a call of a site that was recorded at this time is a sample of those that were counted.
    pub fn is_sample(&self, site: u32, clock: u64) -> bool {
        let times = self.sampled.get(&site).map_or(&[][..], Vec::as_slice);
        let after = times.partition_point(|time| *time.start() <= clock);
        times[..after]
            .last()
            .is_some_and(|time| clock <= *time.end())
    }

    /// The sites that were off at any time.
    pub fn sites(&self) -> impl Iterator<Item = u32> {
        self.sites_in(SiteState::Off)
    }

    /// The sites that were counted at any time.
    pub fn counted_sites(&self) -> impl Iterator<Item = u32> {
        self.sites_in(SiteState::Counted)
    }

    fn sites_in(&self, state: SiteState) -> impl Iterator<Item = u32> {
        let sites = self.untimed.iter();
        let sites = sites.filter(move |(_, times)| times.iter().any(|(known, _)| *known == state));
        sites.map(|(site, _)| *site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(counter: u64, state: SiteState, sites: &[u32]) -> Note {
        Note::State {
            counter,
            state,
            sites: sites.into(),
            kept: false,
            sampled: false,
        }
    }

    #[test]
    fn a_site_is_sampled_from_a_note_to_the_next_state() {
        use SiteState::{Counted, Off, Timed};
        let sampled = |counter, sites: &[u32]| Note::State {
            counter,
            state: Counted,
            sites: sites.into(),
            kept: false,
            sampled: true,
        };
        let written =
            r#"{"State":{"counter":20,"state":"off","counted":true,"sites":[1,2],"sampled":true}}"#;
        assert_eq!(
            serde_json::to_string(&sampled(20, &[1, 2])).unwrap(),
            written
        );
        let states = SiteStates::of_notes(&[
            state(10, Counted, &[1, 2, 3]),
            sampled(20, &[1, 2]),
            sampled(25, &[1]),
            state(30, Counted, &[1]),
            state(40, Timed, &[1]),
            state(50, Counted, &[1]),
            sampled(60, &[1]),
            state(70, Off, &[1]),
        ]);
        assert_eq!(states.sampled_sites().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(states.changes, 6);
        let at = |site| {
            let clocks = (0..100)
                .step_by(5)
                .filter(|clock| states.is_sample(site, *clock));
            clocks.collect::<Vec<u64>>()
        };
        assert_eq!(at(1), [20, 25, 30, 60, 65, 70]);
        assert_eq!(at(2), (20..100).step_by(5).collect::<Vec<u64>>());
        assert_eq!(at(3), [0; 0]);
    }

    #[test]
    fn a_site_is_off_from_one_note_to_the_next() {
        use SiteState::{Off, Timed};
        let states = SiteStates::of_notes(&[
            Note::Budget {
                counter: 1,
                percent: Some(5.0),
            },
            state(10, Off, &[1, 2]),
            state(20, Timed, &[1, 3]),
            state(25, Off, &[2]),
            state(30, Off, &[1]),
            Note::Budget {
                counter: 40,
                percent: None,
            },
        ]);
        assert_eq!((states.percent, states.changes), (Some(5.0), 4));
        assert_eq!(states.sites().collect::<Vec<_>>(), [1, 2]);
        let off = |site, from, until| states.off(site, &(from..=until));
        assert_eq!(
            [off(1, 0, 100), off(2, 0, 100), off(3, 0, 100)],
            [80, 90, 0]
        );
        assert_eq!([off(1, 12, 15), off(1, 20, 30), off(1, 0, 5)], [3, 0, 0]);
        assert_eq!([off(1, 15, 35), off(2, 50, 40)], [10, 0]);
    }

    /// Readers that do not know of counting must know of the calls that are missing.
    #[test]
    fn a_site_that_is_counted_is_written_as_one_that_is_off() {
        use SiteState::{Counted, Off, Timed};
        for (is, written) in [
            (
                Timed,
                r#"{"State":{"counter":1,"state":"timed","sites":[7]}}"#,
            ),
            (Off, r#"{"State":{"counter":1,"state":"off","sites":[7]}}"#),
            (
                Counted,
                r#"{"State":{"counter":1,"state":"off","counted":true,"sites":[7]}}"#,
            ),
        ] {
            let note = state(1, is, &[7]);
            assert_eq!(serde_json::to_string(&note).unwrap(), written);
            assert_eq!(serde_json::from_str::<Note>(written).unwrap(), note);
        }
    }

    #[test]
    fn a_site_is_counted_or_off_but_not_both() {
        use SiteState::{Counted, Off, Timed};
        let states = SiteStates::of_notes(&[
            state(10, Counted, &[1, 2]),
            state(20, Off, &[1]),
            state(30, Counted, &[1]),
            state(35, Counted, &[1]),
            state(40, Timed, &[1]),
        ]);
        let all = 0..=100;
        assert_eq!([states.counted(1, &all), states.off(1, &all)], [20, 10]);
        assert_eq!([states.counted(2, &all), states.off(2, &all)], [90, 0]);
        assert_eq!(states.sites().collect::<Vec<_>>(), [1]);
        assert_eq!(states.counted_sites().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(states.changes, 5);
    }

    #[test]
    fn calls_that_were_counted_are_those_of_all_memories_between_two_moments() {
        let counted = |counter, memory, calls: &[(u32, u64)]| Note::Counted {
            counter,
            memory,
            calls: calls.into(),
        };
        let states = SiteStates::of_notes(&[
            counted(10, 7, &[(1, 100), (2, 5)]),
            counted(20, 7, &[(1, 250)]),
            counted(20, 8, &[(1, 1000)]),
            counted(30, 7, &[(1, 260)]),
        ]);
        let calls = |site, from, until| states.calls(site, &(from..=until));
        assert_eq!(
            [calls(1, 0, 100), calls(2, 0, 100), calls(3, 0, 100)],
            [1260, 5, 0]
        );
        assert_eq!(
            [calls(1, 0, 10), calls(1, 11, 20), calls(1, 21, 30)],
            [100, 1150, 10]
        );
        assert_eq!(
            [calls(1, 0, 9), calls(1, 31, 40), calls(1, 40, 5)],
            [0, 0, 0]
        );
    }

    #[test]
    fn unrecorded_calls_are_told_by_the_times_between_looks_and_those_that_sites_were_off() {
        use SiteState::{Counted, Off, Timed};
        let counted = |counter, memory, calls: &[(u32, u64)]| Note::Counted {
            counter,
            memory,
            calls: calls.into(),
        };
        let states = SiteStates::of_notes(&[
            state(5, Counted, &[1, 2]),
            state(7, Counted, &[3]),
            counted(10, 7, &[(1, 100), (2, 5)]),
            counted(20, 7, &[(1, 250)]),
            state(22, Off, &[1, 2]),
            counted(25, 8, &[(3, 9)]),
            state(28, Timed, &[1]),
            counted(30, 7, &[(1, 251)]),
        ]);
        let counted = |time, calls: &[(u32, u64)]| Unrecorded {
            time,
            calls: UnrecordedCalls::Counted(calls.into()),
        };
        let unknown = |time, sites: &[u32]| Unrecorded {
            time,
            calls: UnrecordedCalls::Unknown(sites.into()),
        };
        assert_eq!(
            states.unrecorded(),
            [
                counted(5..=10, &[(1, 100), (2, 5)]),
                counted(10..=20, &[(1, 150)]),
                counted(7..=25, &[(3, 9)]),
                unknown(22..=28, &[1]),
                counted(20..=30, &[(1, 1)]),
                unknown(22..=u64::MAX, &[2]),
            ]
        );
    }

    #[test]
    fn times_of_a_damaged_trace_are_in_order() {
        use SiteState::{Off, Timed};
        let states = SiteStates::of_notes(&[
            state(50, Off, &[1]),
            state(20, Timed, &[1]),
            state(10, Off, &[1]),
            state(u64::MAX, Timed, &[1]),
        ]);
        assert_eq!(states.off(1, &(0..=100)), 50);
        assert_eq!(states.off(1, &(0..=u64::MAX)), u64::MAX - 50);
    }
}
